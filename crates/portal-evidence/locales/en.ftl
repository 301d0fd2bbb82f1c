# Pages of evidence. Only texts whose template says so may hold HTML.
violations-title = Violations
violations-about = Search what the cameras saw, decide about it, take it out for a court.
violations-hidden = { $count ->
    [one] { $count } is not shown: above your clearance or outside your unit.
   *[other] { $count } are not shown: above your clearance or outside your unit.
}
violations-older = Nothing among the newest. Continue with older ones.
violations-nothing = No violation that you may see matches.

overview-open = { $count ->
    [one] open violation
   *[other] open violations
}
overview-today = in the last 24 hours
overview-cameras = { $count ->
    [one] camera
   *[other] cameras
}
overview-gaps = { $count ->
    [one] camera with missing blocks
   *[other] cameras with missing blocks
}
overview-latest = Latest
overview-nothing = Nothing that you may see has arrived yet.

filter-from = From
filter-to = To
filter-plate = Plate
filter-place = Place
filter-camera = Camera
filter-speed = From km/h
filter-state = State
filter-search = Search
filter-clear = Clear
wrong-number = { $field }: "{ $value }" is not a number
wrong-choice = { $field }: "{ $value }" is unknown
wrong-place = { $field }: "{ $value }" is not a place in the list
wrong-date = { $field }: "{ $value }" is not a date like 2026-11-21
wrong-day = { $field }: "{ $value }" is too late a day

state-all = all
state-open = open
state-accepted = accepted
state-rejected = rejected
plate-none = no plate
speed-limit = limit { $limit }
kind-speeding = speeding
kind-red-light = red-light
kind-wrong-way = wrong-way
kind-overloaded = overloaded

violation-title = Violation { $plate }
violation-disputed = disputed
violation-disputed-title = Disputed.
violation-disputed-lead = Another block with this camera's signature claims the number { $number }: somebody else has the camera's key, or the camera was set back to an earlier state. Both are kept; which one came first proves nothing. In quarantine:
violation-picture = Picture { $number } of the violation, taken by { $camera }
violation-facts = Facts
violation-seen = Seen
violation-speed = Speed
violation-limit = at a limit of { $limit }
violation-lane = Lane

review-title = Review
review-by = by { $name }
review-none = Nobody has decided yet.
review-reason = Reason
review-accept = Accept
review-reject = Reject
review-unknown = decision: "{ $value }" is unknown
review-seen = seen: not a number of decisions
violation-similar = similar
review-length = reason: between 1 and 1000 characters, please

export-title = Export
export-lead = A package that an expert can check with <code>openssl</code> and one small script, without this system.
export-download = Download the package

custody-title = Who did what
custody-time = Time
custody-who = Who
custody-what = What
custody-entry = Log entry

proofs-title = Proofs
proofs-block = Sealed block
proofs-manifest = Signed manifest
proofs-number = number { $number } of { $camera }
proofs-received = Received
proofs-receipt = Receipt
proofs-entry = entry { $number } of the audit log
proofs-unsigned = being signed

cameras-title = Cameras
cameras-about = See which cameras send, what is missing and what they could not seal.
cameras-nothing = No camera has sent anything yet.
camera-name = Camera
camera-unit = Unit
camera-seen = Last seen
camera-never = never
camera-blocks = Blocks
camera-quarantined = Quarantined
camera-head = Latest number
camera-missing = Missing
camera-complete = complete
camera-gaps = missing
camera-forks = { $count } disputed
camera-epoch = epoch { $epoch }
camera-missing-before = { $count } missing before the replacement
camera-dropped = { $count } declared lost by the camera
camera-set-aside = Set aside by the camera
camera-aside-count = { $count } not sealed
camera-aside-oldest = the oldest
camera-aside-reported = reported
camera-aside-none = none
