# Strony obcych aplikacji.
services-title = Aplikacje
services-about = Otwórz aplikacje swojej policji, z których możesz korzystać.
services-lead = Widzisz aplikacje, które reguły dostępu otwierają teraz dla Ciebie. Każde otwarcie jest zapisywane.
services-search = Nazwa lub właściciel
services-find = Szukaj
services-none = Żadna dostępna dla Ciebie aplikacja nie ma „{ $query }” w nazwie ani we właścicielu.
