package resources

import (
	"context"
	"errors"
	"fmt"
	"hash/crc64"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strconv"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/cpumgr"
	"github.com/nodewright/nodewright/fit"
	"github.com/nodewright/nodewright/internal/safefile"
	"github.com/nodewright/nodewright/numa"
)

const (
	// kubeletCPUs is the kubelet's file, in its root directory.
	kubeletCPUs = "cpu_manager_state"
	// maxKubeletCPUs is the largest one that is read, in bytes: 250 pods of 20
	// containers make a third of it.
	maxKubeletCPUs = 1 << 20
	// placementKubeletKey is the key in the store of the sum of the kubelet's file as this
	// agent wrote it last. No pod has that UID.
	placementKubeletKey = "kubelet"
)

// kubelet is what is known of a kubelet that had this node, or will have it.
type kubelet struct {
	told chan struct{} // has a token while its file may not say what was decided

	// shared means that its file is there, and is kept up to date. had is what it
	// gave to pods of which nothing else is known yet; nil if it was not here since
	// this agent. Part.mu guards both.
	shared bool
	had    map[types.UID]map[string]numa.CPUSet
}

// fromKubelet reads what a kubelet gave, if it wrote that after this agent did.
// Where there is such a file, the agent keeps it up to date, so that a kubelet can go
// on from there.
func (p *Placement) fromKubelet() {
	if p.cfg.KubeletDir == "" {
		return
	}
	b, err := safefile.ReadFile(filepath.Join(p.cfg.KubeletDir, kubeletCPUs), maxKubeletCPUs)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	var had map[types.UID]map[string]numa.CPUSet
	if err == nil && !p.isOurs(b) {
		had, err = p.decodeKubelet(b)
	}
	if err != nil {
		p.cfg.Log.Warn("kubelet's CPU state ignored", zap.Error(err))
	}
	if had != nil {
		p.cfg.Log.Info("CPUs taken over from a kubelet", zap.Int("pods", len(had)))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kubelet.shared, p.kubelet.had = true, had
}

// decodeKubelet is what a kubelet of the same policy gave, by pod.
func (p *Placement) decodeKubelet(b []byte) (map[types.UID]map[string]numa.CPUSet, error) {
	theirs, err := cpumgr.DecodeKubelet(b)
	if err == nil && theirs.Policy != p.policy() {
		err = fmt.Errorf("policyName %q: want %q", theirs.Policy, p.policy())
	}
	if err != nil {
		return nil, err
	}
	had := make(map[types.UID]map[string]numa.CPUSet, len(theirs.Pods))
	for uid, has := range theirs.Pods {
		had[types.UID(uid)] = has
	}
	return had, nil
}

// isOurs reports whether this agent wrote the kubelet's file last: its checkpoints
// say more then.
func (p *Placement) isOurs(b []byte) bool {
	if p.cfg.Store == nil {
		return false
	}
	had, err := p.cfg.Store.Read(placementKubeletKey)
	return err == nil && string(had) == sum(b)
}

func sum(b []byte) string {
	return strconv.FormatUint(crc64.Checksum(b, crc64.MakeTable(crc64.ECMA)), 16)
}

// policy is the name of the CPU policy in a kubelet's file.
func (p *Placement) policy() string {
	if p.cfg.Fit.CPUPolicy == "" {
		return fit.CPUNone
	}
	return p.cfg.Fit.CPUPolicy
}

// withKubelet adds what a kubelet gave to those containers of a pod of which nothing
// runs: what runs reports itself. p.mu is held.
func (p *Placement) withKubelet(uid types.UID, has, live map[string]numa.CPUSet) map[string]numa.CPUSet {
	theirs := p.kubelet.had[uid]
	if len(theirs) == 0 {
		return has
	}
	out := maps.Clone(has)
	if out == nil {
		out = map[string]numa.CPUSet{}
	}
	for name, cpus := range theirs {
		if _, runs := live[name]; !runs {
			out[name] = cpus
		}
	}
	return out
}

// kubeletPods are the pods of a kubelet of which there is no checkpoint, by what it
// gave them: their specs may come much later, and until then nobody else may get
// their CPUs. Those that run come first. p.mu is held.
func (p *Placement) kubeletPods() []numa.Pod {
	var run, rest []numa.Pod
	for _, uid := range slices.Sorted(maps.Keys(p.kubelet.had)) {
		if p.pods[uid] != nil || p.early.stopped[uid] {
			continue
		}
		pod, ok := placementKubeletPod(uid, p.kubelet.had[uid])
		switch {
		case !ok:
		case p.anyLive(uid):
			run = append(run, pod)
		default:
			rest = append(rest, pod)
		}
	}
	return append(run, rest...)
}

// placementKubeletPod is a pod that would be given those CPUs.
func placementKubeletPod(uid types.UID, has map[string]numa.CPUSet) (pod numa.Pod, ok bool) {
	pod = numa.Pod{UID: string(uid), Guaranteed: true}
	pool := has[""]
	if !pool.Empty() {
		pod.Resources = &numa.Resources{MilliCPU: 1000 * int64(pool.Len()), Bound: true}
	}
	var taken numa.CPUSet
	for _, name := range slices.Sorted(maps.Keys(has)) {
		cpus := has[name]
		if name == "" || cpus.IntersectLen(taken) > 0 { // one of them is an init container
			continue
		}
		c := numa.Container{Name: name, Resources: numa.Resources{Bound: true}}
		if pool.Empty() || !cpus.Equal(pool) {
			c.MilliCPU = 1000 * int64(cpus.Len())
			taken = taken.Union(cpus)
		}
		pod.Containers = append(pod.Containers, c)
	}
	return pod, len(pod.Containers) > 0
}

// tell has the kubelet's file written again. It never blocks.
func (p *Placement) tell() {
	select {
	case p.kubelet.told <- struct{}{}:
	default:
	}
}

// Run implements part.Runner: it keeps the kubelet's file up to date.
func (p *Placement) Run(ctx context.Context) error {
	for {
		select {
		case <-p.kubelet.told:
			p.logged("failed to write the kubelet's CPU state", p.tellKubelet())
		case <-ctx.Done():
			select {
			case <-p.kubelet.told:
				p.logged("failed to write the kubelet's CPU state", p.tellKubelet())
			default:
			}
			return nil
		}
	}
}

func (p *Placement) tellKubelet() error {
	p.mu.Lock()
	shared, restored, state := p.kubelet.shared, p.restored, p.node.State.CPU
	p.mu.Unlock()
	if !shared || !restored || p.cfg.Fit.Idle() { // what is not placed need not be told
		return nil
	}
	b, err := state.EncodeKubelet(p.policy())
	if err != nil {
		return err
	}
	dir, err := safefile.OpenDir(p.cfg.KubeletDir, ".")
	if err != nil {
		return err
	}
	if err := errors.Join(dir.Replace(kubeletCPUs, b, 0o600), dir.Close()); err != nil || p.cfg.Store == nil {
		return err
	}
	return p.cfg.Store.Write(placementKubeletKey, []byte(sum(b)))
}
