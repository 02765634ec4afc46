package server

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// File names of the self-signed pair, as in the kubelet.
const (
	ownCert = "kubelet.crt"
	ownKey  = "kubelet.key"
)

// selfSigned makes sure that dir has a pair, and returns its paths. A readable pair is kept, so
// that clients that trust it continue to do so. A damaged one is replaced.
func selfSigned(dir, host string, ips []net.IP) (certFile, keyFile string, err error) {
	certFile, keyFile = filepath.Join(dir, ownCert), filepath.Join(dir, ownKey)
	// Expiry is not checked, as in the kubelet.
	if _, err := tls.LoadX509KeyPair(certFile, keyFile); err == nil {
		return certFile, keyFile, nil
	}
	cert, key, err := makePair(host, ips, time.Now())
	if err != nil {
		return "", "", fmt.Errorf("self-signed certificate: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // certificates are public; the key is 0600
		return "", "", err
	}
	// The key is written first: a certificate without its key would be worse than the reverse.
	if err := replace(keyFile, key, 0o600); err != nil {
		return "", "", err
	}
	if err := replace(certFile, cert, 0o644); err != nil {
		return "", "", err
	}
	return certFile, keyFile, nil
}

// makePair creates a self-signed certificate for a host, valid for one year like the kubelet's.
// It is not a certificate authority.
func makePair(host string, ips []net.IP, now time.Time) (cert, key []byte, err error) {
	// P-256 is fast, and all clients support it.
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	// 127 bits: a positive number, with far more than the 64 random bits that a serial number
	// should have.
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		// With the time, several certificates of one host can be told apart in a list.
		Subject:     pkix.Name{CommonName: fmt.Sprintf("%s@%d", host, now.Unix())},
		NotBefore:   now.Add(-time.Hour), // for clients whose clocks are slow
		NotAfter:    now.AddDate(1, 0, 0),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IPAddresses: ips, BasicConstraintsValid: true,
	}
	// If the name is an IP address, it must be among the addresses: clients compare by type.
	if ip := net.ParseIP(host); ip != nil {
		template.IPAddresses = append(template.IPAddresses, ip)
	} else {
		template.DNSNames = []string{host}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		return nil, nil, err
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}), nil
}

// replace replaces a file atomically: a crash leaves the old or the new content. The directory is
// not synced, since a lost pair is created again.
func replace(path string, data []byte, mode os.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	// After the rename the name no longer exists, and Remove does nothing.
	defer func() { _ = os.Remove(f.Name()) }()
	if _, err := f.Write(data); err != nil {
		_ = f.Close()
		return err
	}
	// Set before the rename, since others must never be able to read the key.
	if err := f.Chmod(mode); err != nil {
		_ = f.Close()
		return err
	}
	if err := f.Sync(); err != nil {
		_ = f.Close()
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
