package shutdown

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"go.uber.org/zap"
)

// stateKey is the name of the kubelet's file of the same purpose.
const stateKey = "graceful_node_shutdown_state"

// state is what the next process needs to know about a shutdown, in JSON.
type state struct {
	// StartTime and EndTime are the times of the last shutdown; EndTime is zero
	// until its pods have ended.
	StartTime time.Time `json:"startTime"`
	EndTime   time.Time `json:"endTime"`
	// Down reports that the shutdown was not cancelled, and Boot is the boot in
	// which it began.
	Down bool   `json:"down"`
	Boot string `json:"boot"`
}

// AsideStore is a [Store] that can rename a stored value that cannot be decoded, so
// that it is kept for inspection. *checkpoint.Store implements it.
type AsideStore interface {
	SetAside(key string, cause error) error
}

// Restore reads the state that an earlier process stored. If the machine was shutting
// down at that time and has not been booted since, no pods are admitted until Run has
// read the machine's current state. Call it before Run and before Admit. An error means
// that nothing could be read; everything else works.
func (m *Manager) Restore() error {
	if m.cfg.State == nil || len(m.groups) == 0 {
		return nil
	}
	raw, err := m.cfg.State.Read(stateKey)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("shutdown: %w", err)
	}
	var s state
	if err := json.Unmarshal(raw, &s); err != nil {
		if a, ok := m.cfg.State.(AsideStore); ok { // such as a checkpoint.Store
			err = errors.Join(err, a.SetAside(stateKey, err))
		}
		return fmt.Errorf("shutdown: %s: %w", stateKey, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state = s
	m.met.show(s)
	if s.Down && s.Boot != "" && s.Boot == m.cfg.BootID {
		m.down = true
	} else {
		m.state.Down = false
	}
	return nil
}

// keepFor is the longest wait until the state is written. If the disk hangs, the pods
// are terminated after this time anyway.
const keepFor = 2 * time.Second

// keep updates the metrics and writes the current state.
func (m *Manager) keep() {
	m.mu.Lock()
	m.met.show(m.state)
	m.mu.Unlock()
	if m.cfg.State == nil {
		return
	}
	done := make(chan struct{})
	m.wg.Go(func() {
		defer close(done)
		m.keeping <- struct{}{}
		defer func() { <-m.keeping }()
		m.mu.Lock()
		raw, err := json.Marshal(m.state) // the newest state, whatever the order of callers
		m.mu.Unlock()
		if err == nil {
			err = m.cfg.State.Write(stateKey, raw)
		}
		if err != nil {
			m.cfg.Log.Error("failed to store state of shutdown", zap.Error(err))
		}
	})
	select {
	case <-done:
	case <-time.After(keepFor):
		m.cfg.Log.Error("the state of the shutdown takes long to store; the shutdown goes on meanwhile")
	}
}
