# Teksty powłoki portalu.
language-name = Polski
language-unknown = Nie ma języka „{ $language }”.

frame-skip = Przejdź do treści
frame-menu = Menu główne
frame-log-out = Wyloguj
frame-notice = Uwaga
frame-direct = Tylko do celów laboratoryjnych: certyfikaty i uprawnienia nie wymagają tu zatwierdzenia (registration.approvals ma wartość "direct").
frame-recorded = Każda otwarta strona i każda podjęta tu decyzja jest zapisywana w dzienniku audytu.

home-title = Przegląd
home-applications = Usługi
home-nothing = Żadna usługa nie jest dla Ciebie dostępna. Jeśli jej potrzebujesz, zwróć się do punktu rejestracji.
continue-title = Chwileczkę
continue-lead = Przejdź dalej, jeśli przeglądarka nie zrobi tego sama.
home-links = Inne aplikacje
home-no-links = Żadna inna aplikacja nie jest teraz dla Ciebie dostępna. Poproś administratora o jej zarejestrowanie albo o rolę lub poziom, których wymaga.

login-title = Zaloguj się
login-card = Włóż <strong>kartę inteligentną</strong> albo zainstaluj swój certyfikat i odśwież tę stronę: otworzy się bez hasła, z Twoim pełnym poziomem dostępu.
login-password-lead = Bez certyfikatu możesz zalogować się nazwą użytkownika i hasłem. Zobaczysz wtedy materiały najwyżej <em>zastrzeżone</em> (poziom 1).
login-user = Nazwa użytkownika
login-password = Hasło
login-later = Spróbuj ponownie za minutę.
login-unrecorded = Nie udało się zapisać logowania. Spróbuj ponownie za minutę.

problem-rule = Decydująca reguła:
problem-back = Wróć do przeglądu
problem-method = ten adres nie służy do tego
problem-form-title = Formularz odrzucony
problem-form-lead = Formularz jest nieaktualny albo pochodzi z innej strony. Niczego nie zmieniono.
problem-form-hint = Otwórz stronę ponownie i wypełnij formularz na niej.
problem-unreadable-title = Żądanie niezrozumiałe
problem-unreadable-lead = Żądania nie można wykonać w tej postaci.
problem-unreadable-hint = Wróć, popraw je i spróbuj ponownie.
problem-unknown-title = Wystąpił błąd
problem-unknown-lead = System nie mógł ustalić, kim jesteś.
problem-unknown-hint = Spróbuj ponownie za minutę; jeśli błąd nie ustąpi, podaj operatorowi godzinę tej próby.
problem-refused-title = Brak dostępu
problem-refused-lead = Rozpoznano Twój certyfikat lub login, ale nie wolno go używać.
problem-refused-hint = Zwróć się do punktu rejestracji o nową kartę lub certyfikat. Tę próbę zapisano.
problem-denied-title = Brak dostępu
problem-denied-lead = Reguły dostępu na to nie pozwalają.
problem-denied-hint = Jeśli potrzebujesz tego w pracy, poproś przełożonego o poziom dostępu lub przypisanie do jednostki. Tę próbę zapisano.
problem-missing-title = Nie znaleziono
problem-missing-lead = Pod tym adresem niczego nie ma.
problem-missing-hint = Zacznij od przeglądu.
problem-busy-title = Za dużo naraz
problem-busy-lead = Jedna osoba może czytać jednocześnie tylko ograniczoną liczbę materiałów.
problem-busy-hint = Dokończ lub zamknij to, co jest otwarte, i spróbuj ponownie.
problem-stale-title = Zmieniono w międzyczasie
problem-stale-lead = Po otwarciu tej strony zapisano inną decyzję.
problem-stale-hint = Wróć, odśwież stronę, przeczytaj tę decyzję i zdecyduj ponownie, jeśli nadal chcesz.
problem-broken-title = Wystąpił błąd
problem-broken-lead = System nie mógł odpowiedzieć. Niczego nie utracono.
problem-broken-hint = Spróbuj ponownie za minutę; jeśli błąd nie ustąpi, podaj operatorowi godzinę tej próby.

ago-now = przed chwilą
ago-minutes = { $count } min temu
ago-hours = { $count } godz. temu
ago-days = { $count ->
    [one] { $count } dzień temu
   *[other] { $count } dni temu
}

level-0 = jawne
level-1 = zastrzeżone
level-2 = poufne
level-3 = tajne
level-4 = ściśle tajne

# Lists that have several pages.
newer = Nowsze
older = Starsze
pages = Strony
newest = Najnowsze
