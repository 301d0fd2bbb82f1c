# Pages of foreign applications.
services-title = Applications
services-about = Open the applications of your police force that you may use.
services-lead = You see the applications that the access rules open to you now. Every opening is recorded.
services-search = Name or owner
services-find = Search
services-none = No application that is open to you has “{ $query }” in its name or owner.
