package podsync

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
)

// maxChain limits the certificates of a chain. Verifiers accept far fewer.
const maxChain = 32

// generate makes a key of a type of KEP-4317.
func generate(keyType string) (crypto.Signer, error) {
	switch keyType {
	case "RSA3072":
		return rsa.GenerateKey(rand.Reader, 3072)
	case "RSA4096":
		return rsa.GenerateKey(rand.Reader, 4096)
	case "ECDSAP256":
		return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case "ECDSAP384":
		return ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	case "ECDSAP521":
		return ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
	case "ED25519":
		_, key, err := ed25519.GenerateKey(rand.Reader)
		return key, err
	}
	return nil, fmt.Errorf("keyType is %.64q; want RSA3072, RSA4096, ECDSAP256, ECDSAP384, ECDSAP521 or ED25519", keyType)
}

// encode returns the key in PEM, as PKCS #8, and an empty request that it has signed.
func encode(key crypto.Signer) (pemKey, request []byte, err error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, fmt.Errorf("encode key: %w", err)
	}
	request, err = x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		return nil, nil, fmt.Errorf("sign certificate request: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), request, nil
}

// cleaned returns the certificates of a chain without headers and text in between.
// The first one must be for the key.
func cleaned(chain string, key crypto.PublicKey) ([]byte, error) {
	var out bytes.Buffer
	rest, n := []byte(chain), 0
	for {
		var b *pem.Block
		if b, rest = pem.Decode(rest); b == nil {
			break
		}
		if b.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("certificateChain has a block %.64q; want CERTIFICATE", b.Type)
		}
		if n++; n > maxChain {
			return nil, fmt.Errorf("certificateChain has more than %d certificates", maxChain)
		}
		c, err := x509.ParseCertificate(b.Bytes)
		if err != nil {
			return nil, fmt.Errorf("certificateChain: certificate %d: %w", n, err)
		}
		if p, ok := c.PublicKey.(interface{ Equal(crypto.PublicKey) bool }); n == 1 && (!ok || !p.Equal(key)) {
			return nil, errors.New("certificateChain: the first certificate is not for the request's key")
		}
		_ = pem.Encode(&out, &pem.Block{Type: b.Type, Bytes: b.Bytes}) // to memory
	}
	if n == 0 {
		return nil, errors.New("certificateChain has no certificate")
	}
	return out.Bytes(), nil
}
