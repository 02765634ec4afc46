package podruntime

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"
)

// Memory stores small values, which survive restarts of the agent. A *checkpoint.Store
// implements it. Keys are UIDs of pods. Its methods may be called from any goroutine.
type Memory interface {
	// Read returns an error that is fs.ErrNotExist for what is not there.
	Read(key string) ([]byte, error)
	Write(key string, value []byte) error
	Delete(key string) error
	Keys() ([]string, error)
}

// savePause is the shortest time between two writes for one pod. With a Backoff of longer
// delays every restart is stored; with shorter delays a restart of the agent may lose the last
// few.
const savePause = 10 * time.Second

// memoryVersion is that of the format below. There are no times in it: a clock
// that was set between two lives of the agent changes nothing.
const memoryVersion = 1

// savedLoops is the record of one pod, in JSON. A record of another version is
// not read.
type savedLoops struct {
	Version    int                  `json:"version"`
	Containers map[string]savedLoop `json:"containers"`
}

type savedLoop struct {
	// Definition is definitionOf, which may be another one by the time it is
	// read.
	Definition string `json:"definition"`
	Restarts   int    `json:"restarts"`
	// Delay is a duration in Go's form, such as 1m20s.
	Delay string `json:"delay"`
}

// encodeLoops writes the loops that have a restart.
func encodeLoops(loops map[string]*crashLoop) ([]byte, error) {
	s := savedLoops{Version: memoryVersion, Containers: map[string]savedLoop{}}
	for name, l := range loops {
		// A loop without a restart has nothing that could not be derived.
		if l.restarts > 0 {
			s.Containers[name] = savedLoop{Definition: l.definition, Restarts: l.restarts, Delay: l.delay.String()}
		}
	}
	return json.Marshal(s)
}

// decodeLoops reads what encodeLoops wrote.
func decodeLoops(b []byte) (map[string]*crashLoop, error) {
	var s savedLoops
	if err := json.Unmarshal(b, &s); err != nil {
		return nil, err
	}
	if s.Version != memoryVersion {
		return nil, fmt.Errorf("version %d: want %d", s.Version, memoryVersion)
	}
	loops := make(map[string]*crashLoop, len(s.Containers))
	for name, c := range s.Containers {
		delay, err := time.ParseDuration(c.Delay)
		if err != nil || delay < 0 {
			// Every value is checked: the file may be damaged, or of somebody else.
			return nil, fmt.Errorf("container %q: delay %q: want a duration of 0s or more", name, c.Delay)
		}
		if c.Restarts < 1 || c.Restarts > math.MaxInt32 {
			return nil, fmt.Errorf("container %q: restarts %d: want 1 to %d", name, c.Restarts, math.MaxInt32)
		}
		loops[name] = &crashLoop{definition: c.Definition, restarts: c.Restarts, delay: delay}
	}
	return loops, nil
}

// load reads what an earlier life of the agent knew of a pod. What cannot be
// read counts as nothing. p.mu is held.
func (b *crashLoops) load(p *podLoops, uid types.UID) {
	if b.memory == nil {
		return
	}
	raw, err := b.memory.Read(string(uid))
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	// Something is there, readable or not, and goes with the pod.
	p.saved = true
	var loops map[string]*crashLoop
	if err == nil {
		loops, err = decodeLoops(raw)
	}
	if err != nil {
		b.log.Warn("what was remembered of a pod's crash loops is lost; restart counts stand in for it",
			zap.String("uid", string(uid)), zap.Error(err))
		return
	}
	for name, l := range loops {
		p.loops[name] = l
	}
}

// save writes what has changed for a pod, if the last time is a while ago; the
// next call comes with the next restart, or with the next look at the pod. A
// failure is logged and tried again then.
func (b *crashLoops) save(uid types.UID, now time.Time) {
	if b.memory == nil {
		return
	}
	b.mu.Lock()
	p := b.pods[uid]
	b.mu.Unlock()
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	// A container that crashes every second must not cost a write each time.
	if !p.dirty || !p.last.IsZero() && now.Sub(p.last) < savePause {
		return
	}
	p.last, p.saved = now, true // also if it fails: that may leave something
	raw, err := encodeLoops(p.loops)
	if err == nil {
		err = b.memory.Write(string(uid), raw)
	}
	if err != nil {
		// A disk that fails fails for all pods: the log has its first failure and
		// its recovery.
		if !b.failing.Swap(true) {
			b.log.Warn("crash loops cannot be remembered", zap.String("uid", string(uid)), zap.Error(err))
		}
		return
	}
	if b.failing.Swap(false) {
		b.log.Info("crash loops are remembered again")
	}
	// Only after a success: what could not be written stays to be written.
	p.dirty = false
}

// forget drops what is known of a pod.
func (b *crashLoops) forget(uid types.UID) {
	b.mu.Lock()
	p := b.pods[uid]
	delete(b.pods, uid)
	// Released before p.mu is taken, which may be held over a write to a slow
	// disk.
	b.mu.Unlock()
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.saved {
		b.erase(string(uid))
	}
}

func (b *crashLoops) erase(key string) {
	err := b.memory.Delete(key)
	b.mu.Lock()
	defer b.mu.Unlock()
	// Keys that could not be deleted are tried again with Retain.
	if delete(b.stale, key); err != nil {
		b.stale[key] = true
		b.log.Warn("crash loops of a pod that is gone stay", zap.String("uid", key), zap.Error(err))
	}
}

// left are the keys that could not be erased. The memory may not list them: what a failed
// write has left is no value.
func (b *crashLoops) left() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Collect(maps.Keys(b.stale))
}

// Retain drops all records of pods for which keep returns false, as Forget does. It is for pods
// that were removed while no agent ran, or without a call of [Manager.Forget].
func (m *Manager) Retain(keep func(types.UID) bool) {
	// What is in memory goes first, and its records with it.
	for _, uid := range m.remembered() {
		if !keep(uid) {
			m.Forget(uid)
		}
	}
	b := m.crash
	if b.memory == nil {
		return
	}
	keys, err := b.memory.Keys()
	if err != nil {
		b.log.Warn("remembered crash loops cannot be listed", zap.Error(err))
		return
	}
	for _, key := range slices.Concat(keys, b.left()) {
		if !keep(types.UID(key)) {
			b.erase(key)
		}
	}
}

// remembered are the pods of which anything is.
func (m *Manager) remembered() []types.UID {
	all := map[types.UID]bool{}
	note(&m.crash.mu, m.crash.pods, all)
	note(&m.runs.mu, m.runs.pods, all)
	return slices.Collect(maps.Keys(all))
}

// note adds the keys of one record to all, under that record's lock.
func note[V any](mu *sync.Mutex, pods map[types.UID]V, all map[types.UID]bool) {
	mu.Lock()
	defer mu.Unlock()
	for uid := range pods {
		all[uid] = true
	}
}
