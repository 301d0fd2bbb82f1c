# Pages of foreign applications.
services-title = Applications
services-about = Open the applications of your police force that you may use.
services-lead = You see the applications that the access rules open to you now. Every opening is recorded.
services-search = Name or owner
services-find = Search
services-none = No application that is open to you has “{ $query }” in its name or owner.
services-logout-title = Log out of applications
services-logout-lead = This ends your logins to all applications that you opened through this portal.
services-logout-button = Log out of all applications
services-logout-done = { $count ->
    [0] You were not logged in to any application.
    [one] Your login to { $count } application has ended.
   *[other] Your logins to { $count } applications have ended.
}
