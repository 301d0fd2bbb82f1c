# Strony materiału dowodowego.
violations-title = Naruszenia
violations-about = Przeszukuj to, co zarejestrowały kamery, oceniaj i eksportuj dla sądu.
violations-hidden = { $count ->
    [one] Nie pokazano { $count } wpisu: powyżej Twojego poziomu dostępu lub spoza Twojej jednostki.
   *[other] Nie pokazano { $count } wpisów: powyżej Twojego poziomu dostępu lub spoza Twojej jednostki.
}
violations-older = Brak wśród najnowszych. Przejdź do starszych.
violations-nothing = Brak pasujących naruszeń, które wolno Ci zobaczyć.

overview-open = { $count ->
    [one] otwarte naruszenie
    [few] otwarte naruszenia
   *[other] otwartych naruszeń
}
overview-today = w ciągu ostatnich 24 godzin
overview-cameras = { $count ->
    [one] kamera
    [few] kamery
   *[other] kamer
}
overview-gaps = { $count ->
    [one] kamera z brakującymi blokami
    [few] kamery z brakującymi blokami
   *[other] kamer z brakującymi blokami
}
overview-latest = Najnowsze
overview-nothing = Nie nadeszło jeszcze nic, co wolno Ci zobaczyć.

filter-from = Od
filter-to = Do
filter-plate = Tablica
filter-place = Miejsce
filter-camera = Kamera
filter-speed = Od km/h
filter-state = Stan
filter-search = Szukaj
filter-clear = Wyczyść
wrong-number = { $field }: „{ $value }” nie jest liczbą
wrong-choice = { $field }: wartość „{ $value }” jest nieznana
wrong-place = { $field }: „{ $value }” nie jest miejscem na liście
wrong-date = { $field }: „{ $value }” nie jest datą w rodzaju 2026-11-21
wrong-day = { $field }: „{ $value }” to zbyt późny dzień

state-all = wszystkie
state-open = otwarte
state-accepted = przyjęte
state-rejected = odrzucone
plate-none = bez tablicy
speed-limit = limit { $limit }
kind-speeding = przekroczenie prędkości
kind-red-light = czerwone światło
kind-wrong-way = jazda pod prąd
kind-overloaded = przeładowanie

violation-title = Naruszenie { $plate }
violation-disputed = sporne
violation-disputed-title = Sporne.
violation-disputed-lead = Inny blok z podpisem tej kamery ma ten sam numer { $number }: ktoś inny ma klucz kamery albo kamera została cofnięta do wcześniejszego stanu. Zachowano oba; to, który nadszedł pierwszy, niczego nie dowodzi. W kwarantannie:
violation-picture = Zdjęcie { $number } naruszenia, wykonane przez { $camera }
violation-facts = Fakty
violation-seen = Zarejestrowano
violation-speed = Prędkość
violation-limit = przy ograniczeniu do { $limit }
violation-lane = Pas ruchu

review-title = Ocena
review-by = – { $name }
review-none = Nikt jeszcze nie podjął decyzji.
review-reason = Uzasadnienie
review-accept = Przyjmij
review-reject = Odrzuć
review-unknown = decyzja: wartość „{ $value }” jest nieznana
review-seen = seen: to nie jest liczba decyzji
violation-similar = podobne
review-length = uzasadnienie: podaj od 1 do 1000 znaków

export-title = Eksport
export-lead = Pakiet, który biegły sprawdzi bez tego systemu, mając <code>openssl</code> i jeden krótki skrypt.
export-download = Pobierz pakiet

custody-title = Kto co zrobił
custody-time = Czas
custody-who = Kto
custody-what = Co
custody-entry = Wpis w dzienniku

proofs-title = Dowody
proofs-block = Zapieczętowany blok
proofs-manifest = Podpisany manifest
proofs-number = numer { $number } kamery { $camera }
proofs-received = Odebrano
proofs-receipt = Pokwitowanie
proofs-entry = wpis { $number } dziennika audytu
proofs-unsigned = w trakcie podpisywania

cameras-title = Kamery
cameras-about = Sprawdź, które kamery nadają, czego brakuje i czego nie mogły zapieczętować.
cameras-nothing = Żadna kamera jeszcze niczego nie przysłała.
camera-name = Kamera
camera-unit = Jednostka
camera-seen = Ostatnio widziana
camera-never = nigdy
camera-blocks = Bloki
camera-quarantined = W kwarantannie
camera-head = Ostatni numer
camera-missing = Braki
camera-complete = komplet
camera-gaps = braki
camera-forks = { $count } spornych
camera-epoch = epoka { $epoch }
camera-missing-before = { $count } brakujących sprzed wymiany
camera-dropped = { $count } zgłoszonych przez kamerę jako utracone
camera-set-aside = Odłożone przez kamerę
camera-aside-count = { $count } niezapieczętowanych
camera-aside-oldest = najstarszy
camera-aside-reported = zgłoszono
camera-aside-none = brak
