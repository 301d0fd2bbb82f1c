# Texts of the shell. A text that ends in -lead, -card or the like may hold HTML where its template says so.
language-name = English
language-unknown = There is no language "{ $language }".

frame-skip = Skip to content
frame-menu = Main
frame-log-out = Log out
frame-notice = Notice
frame-direct = For laboratories only: certificates and rights need no approvals on this site (registration.approvals is "direct").
frame-recorded = Every page you open and every decision you take here is recorded in the audit log.

home-title = Overview
home-applications = Services
home-nothing = No service is open to you. Ask your registration office if you need one.
continue-title = One moment
continue-lead = Continue, if your browser does not do so by itself.
home-links = Applications of others
home-no-links = No application of others is open to you now. Ask your administrator to register one, or ask for the role or clearance that it needs.

login-title = Log in
login-card = Insert your <strong>smart card</strong> or install your certificate and reload this page: it opens without a password and gives you your full clearance.
login-password-lead = Without a certificate you can log in by name and password. You will see no more than <em>restricted</em> (level 1) material.
login-user = User name
login-password = Password
login-later = Try again in a minute.
login-unrecorded = The login could not be recorded. Try again in a minute.

problem-rule = Deciding rule:
problem-back = Back to the overview
problem-method = this address is not meant for that
problem-form-title = Form refused
problem-form-lead = The form is out of date or came from another page. Nothing was changed.
problem-form-hint = Open the page again and fill in the form there.
problem-unreadable-title = Not understood
problem-unreadable-lead = The request could not be carried out as it was sent.
problem-unreadable-hint = Go back, correct it and try again.
problem-unknown-title = Something broke
problem-unknown-lead = The system could not find out who you are.
problem-unknown-hint = Try again in a minute; if it stays, tell the operator the time of this attempt.
problem-refused-title = Access refused
problem-refused-lead = Your certificate or login was recognised, but it may not be used.
problem-refused-hint = Ask your registration office for a new card or certificate. This attempt was recorded.
problem-denied-title = Access refused
problem-denied-lead = The access rules do not permit this.
problem-denied-hint = If you need this for your work, ask your superior for the clearance or unit. This attempt was recorded.
problem-missing-title = Not found
problem-missing-lead = There is nothing at this address.
problem-missing-hint = Start from the overview.
problem-busy-title = Too much at once
problem-busy-lead = There is a limit to what one person reads at the same time.
problem-busy-hint = Read or close what is open, then try again.
problem-stale-title = Changed meanwhile
problem-stale-lead = Another decision was recorded after this page was opened.
problem-stale-hint = Go back, reload the page, read the other decision, and decide again if you still want to.
problem-broken-title = Something broke
problem-broken-lead = The system could not answer. Nothing was lost.
problem-broken-hint = Try again in a minute; if it stays, tell the operator the time of this attempt.

ago-now = just now
ago-minutes = { $count } min ago
ago-hours = { $count } h ago
ago-days = { $count } d ago

level-0 = unclassified
level-1 = restricted
level-2 = confidential
level-3 = secret
level-4 = top secret

# Lists that have several pages.
newer = Newer
older = Older
pages = Pages
newest = Newest
