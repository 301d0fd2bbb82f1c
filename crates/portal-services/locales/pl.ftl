# Strony obcych aplikacji.
services-title = Aplikacje
services-about = Otwórz aplikacje swojej policji, z których możesz korzystać.
services-lead = Widzisz aplikacje, które reguły dostępu otwierają teraz dla Ciebie. Każde otwarcie jest zapisywane.
services-search = Nazwa lub właściciel
services-find = Szukaj
services-none = Żadna dostępna dla Ciebie aplikacja nie ma „{ $query }” w nazwie ani we właścicielu.
services-logout-title = Wyloguj z aplikacji
services-logout-lead = To kończy Twoje logowania we wszystkich aplikacjach otwartych przez ten portal.
services-logout-button = Wyloguj ze wszystkich aplikacji
services-logout-done = { $count ->
    [0] Nie było logowania do żadnej aplikacji.
    [one] Zakończono logowanie do { $count } aplikacji.
    [few] Zakończono logowania do { $count } aplikacji.
   *[other] Zakończono logowania do { $count } aplikacji.
}
