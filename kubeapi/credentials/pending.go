package credentials

import (
	"crypto"
	"errors"
	"fmt"
	"os"
)

// pendingKey is the key of the next request. It is kept until its certificate is
// stored, so that a request that was made before a crash, or that nobody has
// approved yet, is found again. One that cannot be kept is used nevertheless.
func (m *Manager) pendingKey() (crypto.Signer, []byte, error) {
	if text, err := os.ReadFile(m.pendingPath()); err == nil {
		if key, err := decodeKey(text); err == nil {
			return key, text, nil
		}
	}
	key, text, err := newKey()
	if err != nil {
		return nil, nil, fmt.Errorf("credentials: %w", err)
	}
	if err := m.keepPending(text); err != nil {
		m.cfg.Log.Warn("the key of a request cannot be kept: " + err.Error())
	}
	return key, text, nil
}

func (m *Manager) keepPending(text []byte) error {
	if err := os.MkdirAll(m.cfg.Store.Dir, 0o755); err != nil {
		return err
	}
	next := m.pendingPath() + ".new"
	f, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
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
