package resources

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"strconv"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/internal/kubeletsum"
	"github.com/nodewright/nodewright/internal/quantity"
	"github.com/nodewright/nodewright/internal/safefile"
)

const (
	// kubeletFile is the kubelet's file of allocations in its root directory.
	kubeletFile = "allocated_pods_state"
	// maxKubeletFile limits its size, in bytes: 250 pods of 20 containers need a third of it.
	maxKubeletFile = 4 << 20
	// kubeletKey is the key under which the store has a checksum: that of the kubelet's file as
	// this agent last wrote it. No pod has that UID.
	kubeletKey = "kubelet"
)

// kubeletFormat is the kubelet's file in JSON. Data contains JSON too.
type kubeletFormat struct {
	Data     string `json:"data"`
	Checksum uint64 `json:"checksum"`
}

type kubeletData[R any] struct {
	Entries map[types.UID]kubeletPod[R] `json:"entries,omitempty"`
}

// kubeletPod is the allocation of a pod. R is the type of resources: texts for reading, or resource
// lists for writing.
type kubeletPod[R any] struct {
	ContainerResources map[string]R
	PodLevelResources  *R
}

// kubeletTexts has resources whose quantities have not been parsed.
type kubeletTexts struct {
	Limits   map[v1.ResourceName]string `json:"limits"`
	Requests map[v1.ResourceName]string `json:"requests"`
	Claims   []v1.ResourceClaim         `json:"claims"`
}

// decodeKubelet decodes a kubelet's file. all has the allocation of each pod, and checksum is the
// one in the file.
func decodeKubelet(b []byte) (all map[types.UID]*allocation, checksum uint64, err error) {
	var f kubeletFormat
	if err := json.Unmarshal(b, &f); err != nil {
		return nil, 0, err
	}
	if sum := kubeletsum.OfText(f.Data); sum != f.Checksum {
		return nil, 0, fmt.Errorf("checksum is %d; want %d", f.Checksum, sum)
	}
	var data kubeletData[kubeletTexts]
	if err := json.Unmarshal([]byte(f.Data), &data); err != nil {
		return nil, 0, err
	}
	all = map[types.UID]*allocation{}
	for uid, pod := range data.Entries {
		a := &allocation{Containers: map[string]v1.ResourceRequirements{}}
		for name, texts := range pod.ContainerResources {
			if a.Containers[name], err = texts.parse(); err != nil {
				return nil, 0, fmt.Errorf("pod %q, container %q: %w", uid, name, err)
			}
		}
		if pod.PodLevelResources != nil {
			r, err := pod.PodLevelResources.parse()
			if err != nil {
				return nil, 0, fmt.Errorf("pod %q: %w", uid, err)
			}
			a.Pod = &r
		}
		if len(a.Containers) > 0 {
			all[uid] = a
		}
	}
	return all, f.Checksum, nil
}

func (t kubeletTexts) parse() (r v1.ResourceRequirements, err error) {
	list := func(texts map[v1.ResourceName]string) v1.ResourceList {
		if texts == nil {
			return nil
		}
		out := make(v1.ResourceList, len(texts))
		for name, text := range texts {
			q, perr := quantity.Parse(text)
			if perr != nil {
				err = fmt.Errorf("%s: %w", name, perr)
			}
			out[name] = q
		}
		return out
	}
	r.Limits, r.Requests, r.Claims = list(t.Limits), list(t.Requests), t.Claims
	return r, err
}

// encodeKubelet encodes the allocations of pods. Equal allocations give equal bytes.
func encodeKubelet(all map[types.UID]*allocation) (b []byte, checksum uint64, err error) {
	data := kubeletData[v1.ResourceRequirements]{Entries: make(map[types.UID]kubeletPod[v1.ResourceRequirements], len(all))}
	for uid, a := range all {
		data.Entries[uid] = kubeletPod[v1.ResourceRequirements]{ContainerResources: a.Containers, PodLevelResources: a.Pod}
	}
	text, err := json.Marshal(data)
	if err != nil {
		return nil, 0, err
	}
	f := sealKubelet(string(text))
	b, err = json.Marshal(f)
	return b, f.Checksum, err
}

func sealKubelet(data string) kubeletFormat {
	return kubeletFormat{Data: data, Checksum: kubeletsum.OfText(data)}
}

// fromKubelet reads a kubelet's allocations, if the kubelet wrote its file after this agent last
// saw it. An existing file is kept up to date from then on, so that a kubelet can take over. If the
// disk hangs, fromKubelet returns an error, since it cannot tell whether the file is newer than the
// records.
func (p *Resize) fromKubelet() (map[types.UID]*allocation, error) {
	if p.cfg.KubeletDir == "" {
		return nil, nil
	}
	b, err := safefile.ReadFile(filepath.Join(p.cfg.KubeletDir, kubeletFile), maxKubeletFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var theirs map[types.UID]*allocation
	var checksum uint64
	if err == nil {
		theirs, checksum, err = decodeKubelet(b)
	}
	p.mu.Lock()
	p.shared = true
	p.mu.Unlock()
	if err != nil {
		p.cfg.Log.Warn("ignored the kubelet's allocations", zap.Error(err))
		return nil, nil
	}
	had, err := p.cfg.Store.Read(kubeletKey)
	if hangs(err) {
		return nil, fmt.Errorf("list imported allocations of the kubelet: %w", err)
	}
	if err == nil && string(had) == strconv.FormatUint(checksum, 10) {
		return nil, nil
	}
	p.cfg.Log.Info("allocations taken over from a kubelet", zap.Int("pods", len(theirs)))
	return theirs, nil
}

// keepKubeletFile keeps the kubelet's file up to date until ctx ends, and then writes it a last
// time, with the newest pods.
func (p *Resize) keepKubeletFile(ctx context.Context) {
	for ended := false; !ended; {
		select {
		case <-p.kubeletOutdated:
		case <-ctx.Done():
			ended = true
		}
		if err := p.writeKubeletFile(); err != nil {
			p.cfg.Log.Warn("failed to write the kubelet's allocations", zap.Error(err))
		}
	}
}

func (p *Resize) writeKubeletFile() error {
	p.mu.Lock()
	all := map[types.UID]*allocation{}
	if p.shared && p.isRestored() {
		maps.Copy(all, p.read)
		maps.Copy(all, p.left)
		for uid, s := range p.pods {
			all[uid] = s.allocated
		}
	}
	p.mu.Unlock()
	if len(all) == 0 {
		return nil
	}
	b, checksum, err := encodeKubelet(all)
	if err != nil {
		return err
	}
	dir, err := safefile.OpenDir(p.cfg.KubeletDir, ".")
	if err != nil {
		return err
	}
	if err := errors.Join(dir.Replace(kubeletFile, b, 0o600), dir.Close()); err != nil {
		return err
	}
	return p.cfg.Store.Write(kubeletKey, strconv.AppendUint(nil, checksum, 10))
}
