# Strony dziennika audytu.
audit-title = Dziennik audytu
audit-about = Sprawdź, kto co zrobił, z dowodem, że niczego nie zmieniono.
audit-size = { $count ->
    [one] { $count } zdarzenie.
    [few] { $count } zdarzenia.
   *[other] { $count } zdarzeń.
}
audit-lead = Dziennik jest drzewem Merkle’a: <code>cordon audit verify DIR</code> dowodzi bez sieci, że żadnego zdarzenia nie zmieniono, nie usunięto ani nie ucięto.
audit-events = Zdarzenia
audit-entry = Wpis
audit-time = Czas
audit-role = Rola
audit-who = Kto
audit-action = Działanie
audit-what = Czego dotyczy
audit-outcome = Wynik
audit-checkpoint = Podpisany punkt kontrolny
