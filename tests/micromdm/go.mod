module micromdm

go 1.21

require (
	github.com/go-kit/kit v0.4.0
	github.com/micromdm/scep/v2 v2.3.0
	github.com/smallstep/pkcs7 v0.1.1
	github.com/smallstep/scep v0.0.0-20241223071629-a37a330173bc
)

require (
	github.com/go-logfmt/logfmt v0.5.1 // indirect
	github.com/go-stack/stack v1.6.0 // indirect
	github.com/gorilla/context v0.0.0-20160226214623-1ea25387ff6f // indirect
	github.com/gorilla/mux v1.4.0 // indirect
	github.com/groob/finalizer v0.0.0-20170707115354-4c2ed49aabda // indirect
	github.com/pkg/errors v0.8.0 // indirect
	golang.org/x/crypto v0.32.0 // indirect
	golang.org/x/net v0.25.0 // indirect
)
