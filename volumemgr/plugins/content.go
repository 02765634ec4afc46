package plugins

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/internal/bootid"
	"github.com/nodewright/nodewright/internal/rmtree"
	"github.com/nodewright/nodewright/internal/scratch"
	"github.com/nodewright/nodewright/volumemgr"
	"github.com/nodewright/nodewright/volumemgr/internal/atomicdir"
	"github.com/nodewright/nodewright/volumemgr/mount"
)

// ContentKind is a kind of volume whose files the node writes.
type ContentKind int

// The kinds.
const (
	ContentConfigMap ContentKind = iota
	ContentSecret
	contentDownwardAPI
	ContentProjected
)

// ContentConfig configures a [Content]. Mounter is required. If another field is missing, volumes
// that need it fail.
type ContentConfig struct {
	Mounter      mount.Mounter
	Source       ContentSource
	Tokens       Tokens
	Bundles      Bundles
	Certificates Certificates
	// Allocatable returns the node's allocatable resources, which replace limits that are not
	// set.
	Allocatable func() v1.ResourceList
	// NoSwap says whether tmpfs supports the option noswap. If it is nil, the plugin finds this
	// out.
	NoSwap *bool
	// Sync syncs the files of configMap volumes to the disk.
	Sync bool
	// BootID identifies the boot of the machine. The default is the kernel's boot ID.
	BootID string
}

// volumeID identifies a volume of a pod.
type volumeID struct {
	uid  types.UID
	name string
}

// Content is the plugin for volumes of one kind.
type Content struct {
	kind ContentKind
	cfg  ContentConfig

	mu      sync.Mutex
	written map[volumeID]string // fingerprints of the published files
}

// NewContent validates cfg and returns the plugin of a kind.
func NewContent(kind ContentKind, cfg ContentConfig) (*Content, error) {
	var errs []error
	if kind < ContentConfigMap || kind > ContentProjected {
		errs = append(errs, fmt.Errorf("content: kind %d, want ConfigMap, Secret, DownwardAPI or Projected", kind))
	}
	if cfg.Mounter == nil {
		errs = append(errs, errors.New("content: ContentConfig.Mounter is required"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if cfg.BootID == "" {
		cfg.BootID, _ = bootid.Read(os.DirFS("/")) //nolint:forbidigo // the kernel's; "" if it has none
	}
	return &Content{kind: kind, cfg: cfg, written: make(map[volumeID]string)}, nil
}

// Name returns the kubelet's name of the kind.
func (p *Content) Name() string {
	return [...]string{"kubernetes.io/configmap", "kubernetes.io/secret", "kubernetes.io/downward-api", "kubernetes.io/projected"}[p.kind]
}

// Supports reports whether spec is of the kind.
func (p *Content) Supports(spec *volumemgr.Spec) bool {
	v := spec.Volume
	if v == nil {
		return false
	}
	return [...]bool{v.ConfigMap != nil, v.Secret != nil, v.DownwardAPI != nil, v.Projected != nil}[p.kind]
}

func (p *Content) allocatable() v1.ResourceList {
	if p.cfg.Allocatable == nil {
		return nil
	}
	return p.cfg.Allocatable()
}

// collect returns all files of a volume, and how long their content is valid. The duration is 0
// if the content has no end of validity.
func (p *Content) collect(ctx context.Context, v *volumemgr.Volume) (files, time.Duration, error) {
	src := v.Spec.Volume
	switch p.kind {
	case ContentProjected:
		return p.projected(ctx, v, src.Projected)
	case contentDownwardAPI:
		f := files{}
		return f, 0, f.downward(v.Pod, src.DownwardAPI.Items, src.DownwardAPI.DefaultMode, p.allocatable())
	case ContentSecret:
		f, err := p.object(ctx, v, kindSecret, src.Secret.SecretName, src.Secret.Items, src.Secret.DefaultMode, src.Secret.Optional)
		return f, 0, err
	default:
		f, err := p.object(ctx, v, kindConfigMap, src.ConfigMap.Name, src.ConfigMap.Items, src.ConfigMap.DefaultMode, src.ConfigMap.Optional)
		return f, 0, err
	}
}

func (p *Content) object(ctx context.Context, v *volumemgr.Volume, kind, name string, items []v1.KeyToPath, mode *int32, optional *bool) (files, error) {
	o, err := p.get(ctx, kind, v.Pod.Namespace, name, optional)
	if err != nil {
		return nil, err
	}
	f := files{}
	return f, f.keys(kind, name, o, items, mode, optional)
}

// lookAgain is the delay after which objects are read again, if they could not be read and the
// volume kept its files.
const lookAgain = time.Second

// SetUp publishes the files. If the objects cannot be read, but an earlier process of the agent
// has published the files, SetUp succeeds with those files, as if the agent had not restarted.
// The next SetUp, which is a remount, returns the error.
func (p *Content) SetUp(ctx context.Context, v *volumemgr.Volume) (volumemgr.Result, error) {
	f, again, err := p.collect(ctx, v)
	if err != nil && v.Found && p.whole(v) {
		return volumemgr.Result{Path: v.Path, ReadOnly: true, Again: lookAgain}, nil
	}
	if err != nil {
		return volumemgr.Result{}, err
	}
	payload, err := f.payload()
	if err != nil {
		return volumemgr.Result{}, err
	}
	for _, d := range v.Below {
		if err := atomicdir.CheckPath(d); err != nil {
			return volumemgr.Result{}, fmt.Errorf("mount point of another volume: %w", err)
		}
	}
	result := volumemgr.Result{Path: v.Path, ReadOnly: true, Again: again}
	id := volumeID{v.UID, v.Name}
	group := "-"
	if v.FSGroup != nil {
		group = strconv.FormatInt(*v.FSGroup, 10)
	}
	print := f.fingerprint(v.Path, group, v.Below)
	if v.Remount && p.remembered(id) == print && published(v.Path) {
		return result, nil
	}
	p.remember(id, "")
	if err := p.write(ctx, v, payload); err != nil {
		return volumemgr.Result{}, err
	}
	p.mark(v)
	p.remember(id, print)
	return result, nil
}

// published reports whether files are published in dir.
func published(dir string) bool {
	_, err := os.Readlink(filepath.Join(dir, "..data"))
	return err == nil
}

func (p *Content) remembered(id volumeID) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.written[id]
}

func (p *Content) remember(id volumeID, print string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if print == "" {
		delete(p.written, id)
		return
	}
	p.written[id] = print
}

// write creates the directory if it is missing, and publishes the files in it.
func (p *Content) write(ctx context.Context, v *volumemgr.Volume, payload atomicdir.Payload) (err error) {
	before := v.Remount || v.Found || published(v.Path)
	defer func() {
		if err != nil && !before {
			// The volume was not in use yet, so it can be removed.
			if cerr := scratch.Remove(context.WithoutCancel(ctx), p.cfg.Mounter, v.Path); cerr != nil {
				err = errors.Join(err, cerr, volumemgr.ErrUncertain)
			}
		}
	}()
	if err := scratch.Dir(v.Path); err != nil {
		return err
	}
	if p.kind != ContentConfigMap {
		if err := scratch.Mount(ctx, p.cfg.Mounter, p.memory(v.Path), nil); err != nil {
			return err
		}
	}
	if !published(v.Path) {
		if err := scratch.Open(v.Path); err != nil {
			return err
		}
	}
	var within, beside []string
	for _, d := range v.Below {
		if has(payload, d) {
			within = append(within, d)
		} else {
			beside = append(beside, d)
		}
	}
	if err := placesFor(v.Path, beside); err != nil {
		return err
	}
	w, err := atomicdir.New(atomicdir.Config{Dir: v.Path, Group: v.FSGroup, Dirs: within, Sync: p.cfg.Sync && p.kind == ContentConfigMap})
	if err != nil {
		return err
	}
	if _, err = w.Write(payload); err != nil {
		return err
	}
	// Mount points that were in a directory of the old files were removed with it.
	return placesFor(v.Path, v.Below)
}

// memory returns the tmpfs for a volume, as large as the node's allocatable memory.
func (p *Content) memory(path string) mount.FileSystem {
	f := mount.FileSystem{Type: "tmpfs", Source: "tmpfs", Target: path}
	list := p.allocatable()
	if n := list.Memory().Value(); n > 0 {
		f.Options = append(f.Options, "size="+strconv.FormatInt(n, 10))
	}
	if noswap := p.cfg.NoSwap; noswap != nil && *noswap || noswap == nil && scratch.NoSwap() {
		f.Options = append(f.Options, "noswap")
	}
	return f
}

// placesFor creates directories that serve as mount points for other volumes.
func placesFor(dir string, below []string) error {
	if len(below) == 0 {
		return nil
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	for _, d := range below {
		if err := root.MkdirAll(filepath.Clean(d), 0o755); err != nil {
			return err
		}
	}
	return nil
}

// has reports whether the payload itself has files in the topmost directory of a mount point.
// That directory is then part of each set of files.
func has(payload atomicdir.Payload, place string) bool {
	top, _, _ := strings.Cut(filepath.Clean(place), "/")
	for name := range payload {
		if strings.HasPrefix(name, top+"/") {
			return true
		}
	}
	return false
}

// TearDown removes the volume.
func (p *Content) TearDown(ctx context.Context, v *volumemgr.Volume) error {
	p.remember(volumeID{v.UID, v.Name}, "")
	if p.kind == ContentProjected && p.cfg.Tokens != nil {
		p.cfg.Tokens.Forget(v.UID)
	}
	if p.kind == ContentProjected && p.cfg.Certificates != nil {
		p.cfg.Certificates.ForgetVolume(v.UID, v.Name)
	}
	if err := scratch.Remove(ctx, p.cfg.Mounter, v.Path); err != nil {
		return err
	}
	return rmtree.Remove(v.StateDir)
}

// Sources returns the objects from which the files are made.
func (p *Content) Sources(spec *volumemgr.Spec, pod *v1.Pod) []volumemgr.Ref {
	var out []volumemgr.Ref
	add := func(kind, namespace, name string) {
		if ref := (volumemgr.Ref{Kind: kind, Namespace: namespace, Name: name}); !slices.Contains(out, ref) {
			out = append(out, ref)
		}
	}
	v := spec.Volume
	switch p.kind {
	case ContentConfigMap:
		add(kindConfigMap, pod.Namespace, v.ConfigMap.Name)
	case ContentSecret:
		add(kindSecret, pod.Namespace, v.Secret.SecretName)
	case ContentProjected:
		for _, s := range v.Projected.Sources {
			switch {
			case s.ConfigMap != nil:
				add(kindConfigMap, pod.Namespace, s.ConfigMap.Name)
			case s.Secret != nil:
				add(kindSecret, pod.Namespace, s.Secret.Name)
			case s.ClusterTrustBundle != nil && s.ClusterTrustBundle.Name != nil:
				add(kindBundle, "", *s.ClusterTrustBundle.Name)
			case s.ClusterTrustBundle != nil && s.ClusterTrustBundle.SignerName != nil:
				add(kindSigner, "", *s.ClusterTrustBundle.SignerName)
			}
		}
	}
	return out
}

// Stale reports whether the pod's fields in the volume have changed.
func (p *Content) Stale(spec *volumemgr.Spec, previous, current *v1.Pod) bool {
	var items []v1.DownwardAPIVolumeFile
	switch p.kind {
	case contentDownwardAPI:
		items = spec.Volume.DownwardAPI.Items
	case ContentProjected:
		for _, s := range spec.Volume.Projected.Sources {
			if s.DownwardAPI != nil {
				items = append(items, s.DownwardAPI.Items...)
			}
		}
	}
	if len(items) == 0 {
		return false
	}
	mode := int32(0) // any mode will do here
	before, after := files{}, files{}
	err1 := before.downward(previous, items, &mode, nil)
	err2 := after.downward(current, items, &mode, nil)
	return err1 != nil || err2 != nil || before.fingerprint() != after.fingerprint()
}
