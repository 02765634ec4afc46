package kubeapi

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"

	certificatesv1 "k8s.io/api/certificates/v1"

	"go.uber.org/zap"
)

// asked is a request, with the template and the key that it was made from.
type asked struct {
	key      crypto.Signer
	keyPEM   []byte
	template *x509.CertificateRequest
	request  *certificatesv1.CertificateSigningRequest
}

// ask returns the request to send. If the template and the key have not changed, it is the last
// request: a server may be away for weeks, and a new signature for each try would be wasted.
func (m *Credentials) ask(t *x509.CertificateRequest) (*asked, error) {
	key, text, err := m.pendingKey()
	if err != nil {
		return nil, err
	}
	if a := m.asked; a != nil && bytes.Equal(a.keyPEM, text) && sameTemplate(a.template, t) {
		return a, nil
	}
	req, err := newRequest(key, t, m.cfg.Purpose.signer(), m.cfg.Purpose.usages())
	if err != nil {
		return nil, err
	}
	m.asked = &asked{key, text, t, req}
	return m.asked, nil
}

// pendingKey returns the key of the next request. The key stays on disk until its certificate is
// there. So a request from before a crash, or one that is not approved yet, is found again. A key
// that cannot be stored is used nevertheless.
func (m *Credentials) pendingKey() (crypto.Signer, []byte, error) {
	if text, err := readFile(m.pendingPath()); err == nil {
		if a := m.asked; a != nil && bytes.Equal(a.keyPEM, text) {
			return a.key, text, nil
		}
		if key, err := decodeKey(text); err == nil {
			return key, text, nil
		}
	}
	var key crypto.Signer
	var text []byte
	if a := m.asked; a != nil {
		key, text = a.key, a.keyPEM
	} else {
		k, t, err := newKey()
		if err != nil {
			return nil, nil, fmt.Errorf("credentials: %w", err)
		}
		key, text = k, t
	}
	if err := m.keepPending(text); err != nil {
		m.cfg.Log.Warn("failed to store key of certificate request", zap.Error(err))
	}
	return key, text, nil
}

// dropPending removes the key of the current request: the next one has a new key.
func (m *Credentials) dropPending() {
	m.asked = nil
	_ = os.Remove(m.pendingPath())
}

func (m *Credentials) keepPending(text []byte) error {
	if err := os.MkdirAll(m.cfg.Store.Dir, 0o755); err != nil {
		return err
	}
	next := m.pendingPath() + ".new"
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) //nolint:forbidigo // makes a new file
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(next, m.pendingPath()); err != nil {
		return err
	}
	return syncDir(m.cfg.Store.Dir)
}
