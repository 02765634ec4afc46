package podruntime

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"
)

// Memory stores small values, which survive restarts of the agent. A *checkpoint.Store
// implements it. Keys are UIDs of pods. Its methods may be called from any goroutine.
type Memory interface {
	// Read returns an error that is fs.ErrNotExist if there is no value of the key.
	Read(key string) ([]byte, error)
	Write(key string, value []byte) error
	Delete(key string) error
	Keys() ([]string, error)
}

// savePause is the shortest time between two writes for one pod. With a Backoff of longer
// delays every restart is stored; with shorter delays a restart of the agent may lose the last
// few.
const savePause = 10 * time.Second

// memoryVersion is the version of the format below. The format has no points in time: a clock that
// was set while no agent ran changes nothing.
const memoryVersion = 1

// savedLoops is the record of one pod, in JSON. A record of another version is
// not read.
type savedLoops struct {
	Version int `json:"version"`
	// Life is the number of the pod's life; see [podlife.Life]. Records of earlier builds have
	// none.
	Life       *uint32              `json:"life,omitempty"`
	Containers map[string]savedLoop `json:"containers"`
}

type savedLoop struct {
	// Definition is the result of definitionOf at the time of writing.
	Definition string `json:"definition"`
	Restarts   int    `json:"restarts"`
	// Delay is a duration in Go's form, such as 1m20s.
	Delay string `json:"delay"`
}

// encodeLoops returns the record of a pod with the loops that have a restart.
func encodeLoops(life uint32, loops map[string]crashLoop) ([]byte, error) {
	s := savedLoops{Version: memoryVersion, Life: &life, Containers: map[string]savedLoop{}}
	for name, l := range loops {
		// A loop without a restart has nothing that could not be derived.
		if l.Restarts > 0 {
			s.Containers[name] = savedLoop{Definition: l.definition, Restarts: l.Restarts, Delay: l.Last.String()}
		}
	}
	return json.Marshal(s)
}

// decodeLoops decodes the result of encodeLoops. life is the number of the pod's current life. If
// the record is of an earlier life, decodeLoops returns no loops.
func decodeLoops(b []byte, life uint32) (map[string]crashLoop, error) {
	var s savedLoops
	if err := json.Unmarshal(b, &s); err != nil {
		return nil, err
	}
	if s.Version != memoryVersion {
		return nil, fmt.Errorf("version %d: want %d", s.Version, memoryVersion)
	}
	loops := make(map[string]crashLoop, len(s.Containers))
	for name, c := range s.Containers {
		delay, err := time.ParseDuration(c.Delay)
		if err != nil || delay < 0 {
			// Every value is checked: the file may be damaged, or of somebody else.
			return nil, fmt.Errorf("container %q: delay %q: want a duration of 0s or more", name, c.Delay)
		}
		if c.Restarts < 1 || c.Restarts > math.MaxInt32 {
			return nil, fmt.Errorf("container %q: restarts %d: want 1 to %d", name, c.Restarts, math.MaxInt32)
		}
		if s.Life != nil && *s.Life < life {
			loops[name] = crashLoop{definition: c.Definition, recalled: true}
			continue
		}
		loops[name] = crashLoop{CrashLoop: CrashLoop{Restarts: c.Restarts, Last: delay}, definition: c.Definition, recalled: true}
	}
	return loops, nil
}

// savedState says what Config.Memory has of a pod's crash loops.
type savedState struct {
	loaded bool      // Config.Memory was read
	saved  bool      // Config.Memory may have a record
	dirty  bool      // the loops in memory have changed since the last write
	last   time.Time // time of the last attempt to write the record
}

// recallLoops reads the crash loops of a pod from Config.Memory, once in a process. A record that
// cannot be read counts as missing.
func (m *Manager) recallLoops(uid types.UID) {
	loaded := m.cfg.Memory == nil
	life := uint32(0)
	m.runs.see(uid, func(p *podRuns) { loaded, life = loaded || p.loops.loaded, p.life })
	if loaded {
		return
	}
	raw, err := m.cfg.Memory.Read(string(uid))
	saved := !errors.Is(err, fs.ErrNotExist)
	var loops map[string]crashLoop
	if err == nil {
		loops, err = decodeLoops(raw, life)
	}
	if saved && err != nil {
		m.cfg.Log.Warn("failed to read record of a pod's crash loops; using the restart counts of its containers",
			zap.String("uid", string(uid)), zap.Error(err))
	}
	m.runs.change(uid, func(p *podRuns) {
		// Once for each pod, also if it fails: a damaged record does not mend itself. What is
		// there, readable or not, goes with the pod.
		p.loops.loaded, p.loops.saved = true, p.loops.saved || saved
		for name, l := range loops {
			if r := p.of(name); r.loop.definition == "" {
				r.loop = l
			}
		}
	})
}

// saveLoops writes the crash loops of a pod to Config.Memory if they have changed and the last
// write is at least savePause ago. Each sync calls saveLoops, so a change that comes too soon is
// written by a later sync. A failure is logged.
func (m *Manager) saveLoops(uid types.UID, now time.Time) {
	if m.cfg.Memory == nil {
		return
	}
	var loops map[string]crashLoop
	life := uint32(0)
	m.runs.see(uid, func(p *podRuns) {
		life = p.life
		// A container that crashes every second must not cost a write each time.
		if s := &p.loops; !s.dirty || !s.last.IsZero() && now.Sub(s.last) < savePause {
			return
		}
		p.loops.last, p.loops.saved, p.loops.dirty = now, true, false // also if it fails: that may leave something
		loops = map[string]crashLoop{}
		for name, r := range p.newest {
			loops[name] = r.loop
		}
	})
	if loops == nil {
		return
	}
	raw, err := encodeLoops(life, loops)
	if err == nil {
		err = m.cfg.Memory.Write(string(uid), raw)
	}
	if err != nil {
		m.runs.see(uid, func(p *podRuns) { p.loops.dirty = true })
		// A disk that fails fails for all pods: the log has its first failure and
		// its recovery.
		if !m.unsaved.Swap(true) {
			m.cfg.Log.Warn("failed to write record of a pod's crash loops", zap.String("uid", string(uid)), zap.Error(err))
		}
		return
	}
	if m.unsaved.Swap(false) {
		m.cfg.Log.Info("records of crash loops can be written again")
	}
}

// eraseLoops deletes the record of a pod. If that fails, Retain tries again.
func (m *Manager) eraseLoops(uid types.UID) {
	err := m.cfg.Memory.Delete(string(uid))
	m.runs.stay(uid, err != nil)
	if err != nil {
		m.cfg.Log.Warn("failed to remove record of crash loops of a pod that is gone", zap.String("uid", string(uid)), zap.Error(err))
	}
}

// Retain calls [Manager.Forget] for all pods for which keep returns false. It is for pods that were
// removed while no agent ran, or without a call of Forget.
func (m *Manager) Retain(keep func(types.UID) bool) {
	// What is in memory goes first, and its records with it.
	known, left := m.runs.all()
	for _, uid := range known {
		if !keep(uid) {
			m.Forget(uid)
		}
	}
	if m.cfg.Memory == nil {
		return
	}
	keys, err := m.cfg.Memory.Keys()
	if err != nil {
		m.cfg.Log.Warn("failed to list records of crash loops", zap.Error(err))
		return
	}
	for _, key := range keys {
		left = append(left, types.UID(key))
	}
	for _, uid := range left {
		if !keep(uid) {
			m.eraseLoops(uid)
		}
	}
}
