package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"sync"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/podspec"
)

// idsPerPod is how many of the node's IDs a pod with a user namespace of its
// own has (KEP-127). The first range of that length is the node's.
const idsPerPod = 1 << 16

// idRanges sets IDs of the node aside for pods. A pod keeps its range over
// restarts of the agent until it is released: its files belong to these IDs.
type idRanges struct {
	store *lazyStore
	log   *zap.Logger

	mu    sync.Mutex
	taken map[uint32]types.UID // nil before the first use
	of    map[types.UID]uint32
}

// savedRange is what is kept for a pod.
type savedRange struct {
	First  uint32 `json:"first"`
	Length uint32 `json:"length"`
}

func newIDRanges(rootDir string, log *zap.Logger) *idRanges {
	return &idRanges{store: &lazyStore{dir: filepath.Join(rootDir, "userns"), log: log}, log: log}
}

// forPod returns the pod's range: nil if it shares the node's IDs.
func (r *idRanges) forPod(pod *v1.Pod) (*podspec.IDRange, error) {
	if pod.Spec.HostUsers == nil || *pod.Spec.HostUsers {
		return nil, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.open(); err != nil {
		return nil, err
	}
	first, ok := r.of[pod.UID]
	if !ok {
		var err error
		if first, err = r.take(pod.UID); err != nil {
			return nil, err
		}
	}
	return &podspec.IDRange{First: first, Length: idsPerPod}, nil
}

// open reads what earlier lives of the agent gave away. A value that is
// damaged counts as none; its pod gets another range.
func (r *idRanges) open() error {
	if r.taken != nil {
		return nil
	}
	keys, err := r.store.Keys()
	if err != nil {
		return err
	}
	taken, of := map[uint32]types.UID{}, map[types.UID]uint32{}
	for _, key := range keys {
		b, err := r.store.Read(key)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		var s savedRange
		if err := json.Unmarshal(b, &s); err != nil || s.Length != idsPerPod || s.First == 0 || s.First%idsPerPod != 0 {
			r.log.Error("a pod's range of user IDs is none", zap.String("uid", key), zap.ByteString("value", b))
			continue
		}
		taken[s.First], of[types.UID(key)] = types.UID(key), s.First
	}
	r.taken, r.of = taken, of
	return nil
}

// take gives the pod the lowest range that is free.
func (r *idRanges) take(uid types.UID) (uint32, error) {
	for first := uint64(idsPerPod); first <= math.MaxUint32; first += idsPerPod {
		f := uint32(first)
		if _, ok := r.taken[f]; ok {
			continue
		}
		b, err := json.Marshal(savedRange{First: f, Length: idsPerPod})
		if err != nil {
			return 0, err
		}
		if err := r.store.Write(string(uid), b); err != nil {
			return 0, err
		}
		r.taken[f], r.of[uid] = uid, f
		return f, nil
	}
	return 0, fmt.Errorf("all %d ranges of user IDs are taken", len(r.taken))
}

// release frees the range of a pod that is gone, if it had one.
func (r *idRanges) release(uid types.UID) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.open(); err != nil {
		return err
	}
	first, ok := r.of[uid]
	if !ok {
		return nil
	}
	if err := r.store.Delete(string(uid)); err != nil {
		return err
	}
	delete(r.taken, first)
	delete(r.of, uid)
	return nil
}

// held are the pods that have a range. It makes no directory.
func (r *idRanges) held() []types.UID {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open() != nil {
		return nil
	}
	var out []types.UID
	for uid := range r.of {
		out = append(out, uid)
	}
	return out
}
