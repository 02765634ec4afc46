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
	// authorityTime is the validity of the authority: as long as a machine lasts.
	authorityTime = 20 * 365 * 24 * time.Hour
	// servingTime is the validity of the serving certificate. After half of it, a new one is
	// created.
	servingTime = 365 * 24 * time.Hour
	// clientCertificateTime is the default validity of a client's certificate.
	clientCertificateTime = 365 * 24 * time.Hour
	// backdated is subtracted from the start of validity, for clients whose clocks are slow.
	backdated = 5 * time.Minute
)

const (
	certFile = "ca.crt"
	keyFile  = "ca.key"
)

// Authority creates the certificates for a node's own API: a certificate authority that signs
// nothing else, the serving certificate of the API, and client certificates.
//
// [OpenAuthority] stores the authority in a directory that only root can read. Whoever can read
// its key can impersonate anyone, so root creates client certificates on the machine and copies
// them to the clients. The common name of a certificate is the user, and its organizations are
// groups of this package. A certificate cannot be revoked; to invalidate all, remove the
// directory and restart the agent, which creates a new authority.
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte

	mu      sync.Mutex
	serving *tls.Certificate
}

// OpenAuthority reads the authority from a directory. If there is none, it creates one. It returns
// an error if a file of the authority is missing, unreadable or invalid.
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
		return nil, fmt.Errorf("parse authority in %s: %w", dir, err)
	}
	return a, nil
}

// create creates an authority. The key is written last: without it, there is no authority.
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

// serial returns a random serial number (RFC 5280 allows 20 bytes).
func serial() *big.Int {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return new(big.Int).SetBytes(b[:])
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// sign creates a key and a certificate for it.
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

// Client creates the certificate of a client and its key, both in PEM. valid 0 means
// clientCertificateTime.
func (a *Authority) Client(name string, groups []string, valid time.Duration) (cert, key []byte, err error) {
	if name == "" {
		return nil, nil, errors.New("a client's name is empty")
	}
	return a.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: name, Organization: groups}, NotAfter: time.Now().Add(cmp.Or(valid, clientCertificateTime)),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

// TLS returns the configuration to serve the API under these names and addresses. Clients need a
// certificate of the authority.
func (a *Authority) TLS(names []string) *tls.Config {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return &tls.Config{
		MinVersion: tls.VersionTLS12, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool,
		NextProtos:     []string{"h2", "http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return a.server(names) },
	}
}

// server returns the current serving certificate.
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

// Kubeconfig returns a kubeconfig for a client of the API at a URL.
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

// addressFile has the URL of the API, for commands that create kubeconfigs.
const addressFile = "server"

// SetServerURL stores the URL at which the API is served, for [ServerURL].
func SetServerURL(dir, url string) error {
	files := durable.Dir{Path: dir, Disk: durable.OS{DirMode: 0o700, FileMode: 0o600, Limit: 1 << 10}}
	if have, err := files.Read(addressFile); err == nil && string(have) == url {
		return nil
	}
	return files.Replace(addressFile, []byte(url))
}

// ServerURL returns the URL at which the API was last served. The error wraps fs.ErrNotExist if no
// URL was stored.
func ServerURL(dir string) (string, error) {
	url, err := durable.OS{Limit: 1 << 10}.Read(filepath.Join(dir, addressFile))
	return string(url), err
}
