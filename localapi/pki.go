package localapi

import (
	"bytes"
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"path/filepath"
	"sync"
	"time"

	"github.com/nodewright/nodewright/internal/durable"
)

const (
	// authorityTime is how long the authority is valid: as long as machines last.
	authorityTime = 20 * 365 * 24 * time.Hour
	// servingTime is how long a certificate that is served is; a new one is made
	// when half of that is over.
	servingTime = 365 * 24 * time.Hour
	// clientCertificateTime is how long a client's certificate is valid, if it is not said.
	clientCertificateTime = 365 * 24 * time.Hour
	// backdated is for clients whose clock is behind.
	backdated = 5 * time.Minute
)

const (
	certFile = "ca.crt"
	keyFile  = "ca.key"
)

// Authority makes the certificates of a node's own API: an authority that signs
// nothing else, the certificate that the API is served with, and those of clients.
//
// [OpenAuthority] keeps the authority in a directory for root's eyes alone. Who can read its key
// can be anybody, so client certificates are made by root at the machine, and sent to
// where they are used. A certificate says who a client is by its common name, and what
// it may do by its organizations: see the groups of this package. None can be taken
// back but by a new authority: remove the directory and start the agent.
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte

	mu      sync.Mutex
	serving *tls.Certificate
}

// OpenAuthority reads the authority of a directory. If there is none, it makes one.
func OpenAuthority(dir string) (*Authority, error) {
	files := durable.Dir{Path: dir, Disk: durable.OS{DirMode: 0o700, FileMode: 0o600, Limit: 1 << 20}, Sync: true}
	if err := files.Prepare(); err != nil {
		return nil, err
	}
	key, err := files.Read(keyFile)
	if errors.Is(err, fs.ErrNotExist) {
		return create(files)
	}
	if err != nil {
		return nil, err
	}
	cert, err := files.Read(certFile)
	if err != nil {
		return nil, err
	}
	a, err := pkiParse(cert, key)
	if err != nil {
		return nil, fmt.Errorf("authority in %s: %w", dir, err)
	}
	return a, nil
}

// create makes an authority. The key is written last: without it there is none.
func create(files durable.Dir) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	t := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: "nodewright " + rand.Text()[:8]},
		NotBefore: now.Add(-backdated), NotAfter: now.Add(authorityTime),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, t, t, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return nil, err
	}
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if err := errors.Join(files.Replace(certFile, certPEM), files.Replace(keyFile, keyPEM)); err != nil {
		return nil, err
	}
	return pkiParse(certPEM, keyPEM)
}

func pkiParse(cert, key []byte) (*Authority, error) {
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, err
	}
	k, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("%s is a %T; want an ECDSA key", keyFile, pair.PrivateKey)
	}
	c, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		return nil, err
	}
	return &Authority{cert: c, key: k, pem: cert}, nil
}

// serial is a random serial number (RFC 5280 allows 20 bytes).
func serial() *big.Int {
	var b [16]byte
	_, _ = rand.Read(b[:]) // which never fails
	return new(big.Int).SetBytes(b[:])
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// sign makes a key and a certificate for it.
func (a *Authority) sign(t *x509.Certificate) (cert, key []byte, err error) {
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	t.SerialNumber, t.NotBefore, t.KeyUsage = serial(), time.Now().Add(-backdated), x509.KeyUsageDigitalSignature
	if t.NotAfter.After(a.cert.NotAfter) {
		t.NotAfter = a.cert.NotAfter
	}
	der, err := x509.CreateCertificate(rand.Reader, t, a.cert, &k.PublicKey, a.key)
	if err != nil {
		return nil, nil, err
	}
	key, err = encodeKey(k)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), key, err
}

// Client makes the certificate of a client and its key, both PEM. valid is
// clientCertificateTime if it is 0.
func (a *Authority) Client(name string, groups []string, valid time.Duration) (cert, key []byte, err error) {
	if name == "" {
		return nil, nil, errors.New("a client's name is empty")
	}
	return a.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: name, Organization: groups}, NotAfter: time.Now().Add(cmp.Or(valid, clientCertificateTime)),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

// TLS is how the API is served under some names and addresses: to clients with a
// certificate of the authority, and nobody else.
func (a *Authority) TLS(names []string) *tls.Config {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return &tls.Config{
		MinVersion: tls.VersionTLS12, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool,
		NextProtos:     []string{"h2", "http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return a.server(names) },
	}
}

// server is the certificate that is served now.
func (a *Authority) server(names []string) (*tls.Certificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if c := a.serving; c != nil && time.Until(c.Leaf.NotAfter) > servingTime/2 {
		return c, nil
	}
	t := &x509.Certificate{
		Subject: pkix.Name{CommonName: "nodewright"}, NotAfter: time.Now().Add(servingTime), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, n := range names {
		if ip := net.ParseIP(n); ip != nil {
			t.IPAddresses = append(t.IPAddresses, ip)
		} else if n != "" {
			t.DNSNames = append(t.DNSNames, n)
		}
	}
	cert, key, err := a.sign(t)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, err
	}
	if pair.Leaf, err = x509.ParseCertificate(pair.Certificate[0]); err != nil {
		return nil, err
	}
	a.serving = &pair
	return a.serving, nil
}

// Kubeconfig writes a kubeconfig for a client of the API at a URL.
func (a *Authority) Kubeconfig(url, name string, cert, key []byte) []byte {
	b64 := base64.StdEncoding.EncodeToString
	var b bytes.Buffer
	fmt.Fprintf(&b, `apiVersion: v1
kind: Config
clusters:
- name: node
  cluster:
    server: %q
    certificate-authority-data: %s
users:
- name: %[3]q
  user:
    client-certificate-data: %[4]s
    client-key-data: %[5]s
contexts:
- name: node
  context:
    cluster: node
    user: %[3]q
current-context: node
`, url, b64(a.pem), name, b64(cert), b64(key))
	return b.Bytes()
}

// addressFile says where the API is served, for who makes kubeconfigs.
const addressFile = "server"

// SetServerURL notes where the API is served.
func SetServerURL(dir, url string) error {
	files := durable.Dir{Path: dir, Disk: durable.OS{DirMode: 0o700, FileMode: 0o600, Limit: 1 << 10}}
	if have, err := files.Read(addressFile); err == nil && string(have) == url {
		return nil
	}
	return files.Replace(addressFile, []byte(url))
}

// ServerURL is where the API was served last.
func ServerURL(dir string) (string, error) {
	url, err := durable.OS{Limit: 1 << 10}.Read(filepath.Join(dir, addressFile))
	return string(url), err
}
