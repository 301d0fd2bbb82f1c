"""The list of violations as a Flask application over the site's index; see scripts/bench-web.

What one would write by hand for the same page: who may see what by the certificate's name, the newest rows of those
groups, a template. It keeps no log and asks nobody about revocation.
"""

import os
import sqlite3
import time

import flask

app = flask.Flask(__name__)
PAGE = 24
LEVEL, UNIT = 3, "traffic"
LEVELS = ["public", "internal", "restricted", "confidential", "secret"]
QUERY = """
SELECT v.position, v.id, v.captured_at, v.kind, v.place, v.plate, v.speed_kmh, v.limit_kmh, a.classification, g.state,
       EXISTS (SELECT 1 FROM forks f WHERE f.accepted_block = v.block_sha256)
FROM violations v JOIN violation_groups g ON g.id = v.violation_group JOIN audiences a ON a.id = g.audience
WHERE a.unit = ? AND a.classification <= ? ORDER BY v.position DESC LIMIT ?
"""
TEMPLATE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Violations</title>
<link rel="stylesheet" href="/assets/style.css">
</head>
<body>
<header class="bar"><a class="brand" href="/">Violations</a><nav><a href="/">Overview</a><a href="/violations">Violations</a></nav>
<div class="person"><span><strong>{{ person }}</strong></span></div></header>
<main id="main">
<h1>Violations</h1>
<form method="get" action="/violations" class="filter card" role="search">
{% for field in ["from", "to", "plate", "place", "device", "speed"] %}
<label>{{ field }} <input name="{{ field }}" value="{{ form.get(field, '') }}" maxlength="80"></label>
{% endfor %}
<button>Search</button></form>
<ul class="cards">
{% for v in rows %}
<li class="card violation">
<a href="/violations/{{ v[1] }}"><img src="/violations/{{ v[1] }}/thumbnail" alt="" loading="lazy" width="320" height="180">
<span class="plate">{{ v[5] or "no plate" }}</span>
<span class="what">{{ v[3] }}{% if v[6] %} · <strong>{{ v[6] }} km/h</strong>{% if v[7] %} <small>limit {{ v[7] }}</small>{% endif %}{% endif %}</span>
<span class="where">{{ v[4] }}</span>
<span class="when"><time datetime="{{ times[loop.index0] }}">{{ times[loop.index0] }}</time></span></a>
<span class="tags"><span class="tag">{{ levels[v[8]] }}</span><span class="tag {{ v[9] }}">{{ v[9] }}</span>{% if v[10] %}<span class="tag">disputed</span>{% endif %}</span>
</li>
{% endfor %}
</ul>
<nav class="pager"><a href="/violations?before={{ rows[-1][0] }}" rel="next">Older</a></nav>
</main>
</body>
</html>
"""
database = None


@app.get("/violations")
def violations():
    global database
    if database is None:
        # Kept: opening it for each request would cost more.
        database = sqlite3.connect(f"file:{os.environ['INDEX']}?mode=ro", uri=True)
    person = flask.request.headers.get("X-Client", "")
    if not person:
        flask.abort(403)
    rows = database.execute(QUERY, (UNIT, LEVEL, PAGE)).fetchall()
    times = [time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(row[2] / 1000)) for row in rows]
    return flask.render_template_string(TEMPLATE, rows=rows, times=times, levels=LEVELS, person=person,
                                        form=flask.request.args)
