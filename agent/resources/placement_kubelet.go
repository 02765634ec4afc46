package resources

import (
	"context"
	"errors"
	"fmt"
	"hash/crc64"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/cpumgr"
	"github.com/nodewright/nodewright/fit"
	"github.com/nodewright/nodewright/internal/safefile"
	"github.com/nodewright/nodewright/internal/wake"
	"github.com/nodewright/nodewright/memmgr"
	"github.com/nodewright/nodewright/numa"
)

const (
	// kubeletCPUs and kubeletMemory are the names of the kubelet's files in its root directory.
	kubeletCPUs   = "cpu_manager_state"
	kubeletMemory = "memory_manager_state"
	// maxKubeletCPUs limits the size of kubeletCPUs, in bytes: 250 pods of 20 containers need a
	// third of it.
	maxKubeletCPUs = 1 << 20
	// placementKubeletKey is the key of the checksums of the kubelet's files as this agent last
	// wrote them. No pod has that UID.
	placementKubeletKey = "kubelet"
)

// kubelet is the state about a kubelet that ran this node before, or may run it later.
type kubelet struct {
	outdated     wake.Signal // set while its files may be outdated
	kubeletFiles             // Placement.mu guards it
}

// kubeletFiles is the content of the kubelet's files at the start.
type kubeletFiles struct {
	hasCPUs, hasMemory bool // the file was there
	sums               kubeletSums
	// cpus and memory are the kubelet's allocations for pods of which this agent knows nothing
	// else yet. They are nil if this agent wrote the files last.
	cpus   map[types.UID]map[string]numa.CPUSet
	memory map[types.UID]map[string][]memmgr.Block
}

// kubeletSums are the checksums of the kubelet's files as this agent last wrote them. A checksum
// is "" if the agent has not written that file.
type kubeletSums struct{ cpus, memory string }

// noSum is what the record has in place of a checksum that is "".
const noSum = "-"

// encode encodes the checksums as words, CPUs first.
func (s kubeletSums) encode() []byte {
	words := []string{s.cpus, s.memory}
	for i, word := range words {
		if word == "" {
			words[i] = noSum
		}
	}
	return []byte(strings.Join(words, " "))
}

// decodeKubeletSums decodes the checksums. first reports a record of v0.1, which had only the
// checksum of CPUs.
func decodeKubeletSums(b []byte) (s kubeletSums, first bool) {
	words := strings.Fields(string(b))
	first = len(words) < 2
	words = append(words, noSum, noSum)
	for i, word := range words {
		if word == noSum {
			words[i] = ""
		}
	}
	return kubeletSums{cpus: words[0], memory: words[1]}, first
}

func sum(b []byte) string {
	return strconv.FormatUint(crc64.Checksum(b, crc64.MakeTable(crc64.ECMA)), 16)
}

// fromKubelet reads the kubelet's allocations, if the kubelet wrote them after this agent.
// Otherwise the checkpoints have more information.
func (p *Placement) fromKubelet() {
	if p.cfg.KubeletDir == "" {
		return
	}
	var k kubeletFiles
	first := false
	if p.cfg.Store != nil {
		if b, err := p.cfg.Store.Read(placementKubeletKey); err == nil {
			k.sums, first = decodeKubeletSums(b)
		}
	}
	k.hasCPUs = p.readKubelet(kubeletCPUs, maxKubeletCPUs, k.sums.cpus, func(b []byte) (err error) {
		k.cpus, err = p.decodeKubeletCPUs(b)
		return err
	})
	k.hasMemory = p.readKubelet(kubeletMemory, memmgr.MaxKubeletFile, k.sums.memory, func(b []byte) (err error) {
		if !first { // otherwise the file is older than the checkpoints of that agent
			k.memory, err = p.decodeKubeletMemory(b)
		}
		return err
	})
	if k.cpus != nil || k.memory != nil {
		p.cfg.Log.Info("CPUs and memory taken over from a kubelet", zap.Int("podsWithCPUs", len(k.cpus)), zap.Int("podsWithMemory", len(k.memory)))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kubelet.kubeletFiles = k
}

// readKubelet decodes a file of the kubelet, unless it has the checksum of this agent's last write.
// It reports whether it was decoded. Errors are logged.
func (p *Placement) readKubelet(name string, limit int64, ours string, decode func([]byte) error) bool {
	b, err := safefile.ReadFile(filepath.Join(p.cfg.KubeletDir, name), limit)
	if errors.Is(err, fs.ErrNotExist) {
		return false
	}
	if err == nil && sum(b) != ours {
		err = decode(b)
	}
	if err != nil {
		p.cfg.Log.Warn("ignored the kubelet's state file", zap.String("file", name), zap.Error(err))
	}
	return true
}

// decodeKubeletCPUs returns the allocations of a kubelet with the same policy, by pod.
func (p *Placement) decodeKubeletCPUs(b []byte) (map[types.UID]map[string]numa.CPUSet, error) {
	theirs, err := cpumgr.DecodeKubelet(b)
	if err == nil && theirs.Policy != p.policy() {
		err = fmt.Errorf("policyName %q: want %q", theirs.Policy, p.policy())
	}
	if err != nil {
		return nil, err
	}
	return byUID(theirs.Pods), nil
}

// decodeKubeletMemory is decodeKubeletCPUs for memory.
func (p *Placement) decodeKubeletMemory(b []byte) (map[types.UID]map[string][]memmgr.Block, error) {
	theirs, err := memmgr.DecodeKubelet(b)
	if want := p.node.Memory.Name(); err == nil && theirs.Policy != want {
		err = fmt.Errorf("policyName %q: want %q", theirs.Policy, want)
	}
	if err != nil {
		return nil, err
	}
	return byUID(theirs.Pods), nil
}

// byUID converts the keys to UIDs. The result is not nil, even if pods is nil.
func byUID[V any](pods map[string]V) map[types.UID]V {
	out := make(map[types.UID]V, len(pods))
	for uid, has := range pods {
		out[types.UID(uid)] = has
	}
	return out
}

// policy returns the name of the CPU policy in a kubelet's file.
func (p *Placement) policy() string {
	if p.cfg.Fit.CPUPolicy == "" {
		return fit.CPUNone
	}
	return p.cfg.Fit.CPUPolicy
}

// Run implements part.Runner: it keeps the kubelet's files up to date.
func (p *Placement) Run(ctx context.Context) error {
	for {
		select {
		case <-p.kubelet.outdated:
			p.logged("failed to write the kubelet's state files", p.writeKubeletFiles())
		case <-ctx.Done():
			select {
			case <-p.kubelet.outdated:
				p.logged("failed to write the kubelet's state files", p.writeKubeletFiles())
			default:
			}
			return nil
		}
	}
}

// writeKubeletFiles writes the kubelet's state files that exist, and the state files of policies
// that place something, since node tools read them.
func (p *Placement) writeKubeletFiles() error {
	p.mu.Lock()
	k, restored, state := p.kubelet.kubeletFiles, p.restored, p.node.State
	p.mu.Unlock()
	if !restored || p.cfg.KubeletDir == "" || p.cfg.Fit.Idle() {
		return nil
	}
	sums := k.sums
	var errs []error
	if k.hasCPUs || p.policy() != fit.CPUNone {
		b, err := state.CPU.EncodeKubelet(p.policy())
		errs = append(errs, p.writeKubelet(kubeletCPUs, b, err, &sums.cpus))
	}
	if k.hasMemory || p.node.Memory.Name() != memmgr.NoneName {
		b, err := state.Memory.EncodeKubelet(p.node.Memory)
		errs = append(errs, p.writeKubelet(kubeletMemory, b, err, &sums.memory))
	}
	if sums == k.sums {
		return errors.Join(errs...)
	}
	if p.cfg.Store != nil {
		if err := p.cfg.Store.Write(placementKubeletKey, sums.encode()); err != nil {
			return errors.Join(append(errs, err)...)
		}
	}
	p.mu.Lock()
	p.kubelet.sums = sums
	p.mu.Unlock()
	return errors.Join(errs...)
}

// writeKubelet replaces the file of this name in the kubelet's directory by b, and stores the
// file's checksum in *checksum. If err is not nil, it writes nothing and returns err with the
// name.
func (p *Placement) writeKubelet(name string, b []byte, err error, checksum *string) error {
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	dir, err := safefile.OpenDir(p.cfg.KubeletDir, ".")
	if err != nil {
		return err
	}
	if err := errors.Join(dir.Replace(name, b, 0o600), dir.Close()); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	*checksum = sum(b)
	return nil
}
