// Enrols and renews over SCEP with the libraries of micromdm's client. That signs with SHA-1 and encrypts with DES; here they are
// told SHA-256 and AES, and what comes back is read as that client reads it.
//
//	micromdm URL FOLDER NAME SHA256 CHALLENGE     a first certificate: FOLDER/NAME.pem, with a key of its own
//	micromdm URL FOLDER NAME SHA256               another one, for a new key, by the one that is there
package main

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"time"

	"github.com/go-kit/kit/log"
	client "github.com/micromdm/scep/v2/client"
	"github.com/micromdm/scep/v2/cryptoutil/x509util"
	"github.com/smallstep/pkcs7"
	"github.com/smallstep/scep"
)

func must[T any](value T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return value
}

func write(file, kind string, der []byte) {
	text := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	must(0, os.WriteFile(file, text, 0o600))
}

func read(file string) []byte {
	block, _ := pem.Decode(must(os.ReadFile(file)))
	return block.Bytes
}

// The client's own word for its key, until it has another.
func selfSigned(key *rsa.PrivateKey, name string) *x509.Certificate {
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    time.Now().Add(-time.Minute),
		NotAfter:     time.Now().Add(time.Hour),
	}
	return must(x509.ParseCertificate(must(x509.CreateCertificate(rand.Reader, template, template, key.Public(), key))))
}

// A message as scep.NewCSRRequest makes it, with SHA-256.
func signed(csr *x509.CertificateRequest, message *scep.PKIMessage) []byte {
	encrypted := must(pkcs7.Encrypt(csr.Raw, message.Recipients))
	data := must(pkcs7.NewSignedData(encrypted))
	data.SetDigestAlgorithm(pkcs7.OIDDigestAlgorithmSHA256)
	nonce := make([]byte, 16)
	must(rand.Read(nonce))
	attribute := func(last int, value any) pkcs7.Attribute {
		return pkcs7.Attribute{Type: asn1.ObjectIdentifier{2, 16, 840, 1, 113733, 1, 9, last}, Value: value}
	}
	attributes := []pkcs7.Attribute{
		attribute(2, message.MessageType), attribute(5, nonce), attribute(7, scep.TransactionID(hex.EncodeToString(nonce))),
	}
	config := pkcs7.SignerInfoConfig{ExtraSignedAttributes: attributes}
	must(0, data.AddSigner(message.SignerCert, message.SignerKey, config))
	return must(data.Finish())
}

func main() {
	url, folder, name := os.Args[1], os.Args[2], os.Args[3]
	fingerprint := must(hex.DecodeString(os.Args[4]))
	pkcs7.ContentEncryptionAlgorithm = pkcs7.EncryptionAlgorithmAES256CBC
	certificate, keyFile := filepath.Join(folder, name+".pem"), filepath.Join(folder, name+".key")

	key := must(rsa.GenerateKey(rand.Reader, 2048))
	request := x509util.CertificateRequest{CertificateRequest: x509.CertificateRequest{Subject: pkix.Name{CommonName: name}}}
	message := &scep.PKIMessage{MessageType: scep.RenewalReq}
	if len(os.Args) > 5 {
		request.ChallengePassword = os.Args[5]
		message.MessageType = scep.PKCSReq
		message.SignerKey, message.SignerCert = key, selfSigned(key, name)
	} else {
		message.SignerKey = must(x509.ParsePKCS1PrivateKey(read(keyFile)))
		message.SignerCert = must(x509.ParseCertificate(read(certificate)))
	}
	csr := must(x509.ParseCertificateRequest(must(x509util.CreateCertificateRequest(rand.Reader, &request, key))))

	site := must(client.New(url, log.NewNopLogger()))
	answer, _, err := site.GetCACert(context.Background(), "")
	authorities := must(scep.CACerts(must(answer, err)))
	message.Recipients = scep.FingerprintCertsSelector(crypto.SHA256, fingerprint).SelectCerts(authorities)
	sent := signed(csr, message)
	reply := must(scep.ParsePKIMessage(must(site.PKIOperation(context.Background(), sent)), scep.WithCACerts(authorities)))
	if reply.PKIStatus != scep.SUCCESS {
		fmt.Fprintln(os.Stderr, "refused:", reply.FailInfo)
		os.Exit(1)
	}
	must(0, reply.DecryptPKIEnvelope(message.SignerCert, message.SignerKey.(*rsa.PrivateKey)))
	write(certificate, "CERTIFICATE", reply.CertRepMessage.Certificate.Raw)
	write(keyFile, "RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(key))
}
