package sim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	authv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/volumemgr"
	"github.com/nodewright/nodewright/volumemgr/plugins"
)

const (
	// secretMark is in all that is secret.
	secretMark = "TOP-SECRET"
	// dataKey is the key of every object, and the name of its file.
	dataKey = "data"
	// tokenLife is what pods ask for.
	tokenLife = time.Hour
)

// object is a ConfigMap or a Secret of the API server.
type object struct {
	kind, name string
	version    int
	gone       bool
	since      time.Time // of its last change
}

func (o *object) text() string {
	mark := "plain"
	if o.kind == "Secret" {
		mark = secretMark
	}
	return fmt.Sprintf("%s %s %d", mark, o.name, o.version)
}

// objectKinds are the keys of a pod's line that give it a volume of an object, by the
// plugin's directory.
var objectKinds = map[string]string{"config": "ConfigMap", "secret": "Secret"}

// objectOf is an object that pods refer to, which is there from the first time on. m.mu is
// held.
func (m *machine) objectOf(kind, name string) *object {
	key := kind + "/" + name
	if m.objects[key] == nil {
		m.objects[key] = &object{kind: kind, name: name, version: 1, since: time.Now()}
	}
	return m.objects[key]
}

// doObject is config|secret NAME change|gone: the object changes, or goes until it changes.
func (m *machine) doObject(s step) error {
	kind, known := objectKinds[s.arg(0)]
	if how := s.arg(2); !known || how != "change" && how != "gone" {
		return fmt.Errorf("object %v: want config or secret, a name, and change or gone", s.args)
	}
	m.mu.Lock()
	o := m.objectOf(kind, s.arg(1))
	o.gone, o.since = s.arg(2) == "gone", time.Now()
	if !o.gone {
		o.version++
	}
	m.mu.Unlock()
	m.tell()
	return nil
}

// healObjects has all objects be there.
func (m *machine) healObjects() {
	m.mu.Lock()
	for _, o := range m.objects {
		if o.gone {
			o.gone, o.since = false, time.Now()
			o.version++
		}
	}
	m.mu.Unlock()
	m.tell()
}

// lacks reports whether an object or a volume that a pod refers to is not there. m.mu is held.
func (m *machine) lacks(p *pod) bool {
	return m.storage.isAway(p) || slices.ContainsFunc(p.volumes, func(v volume) bool { return v.object != nil && v.object.gone })
}

// volume is one of a pod.
type volume struct {
	dir    string  // below the pod's volumes
	object *object // nil: a token, which is in the file instead
	file   string
}

// addVolumes gives a pod the volumes of its line: config and secret name an object, token=1
// is a projected token. m.mu is held.
func (m *machine) addVolumes(p *pod, args []string) {
	s := &p.object.Spec
	mode := int32(0o644)
	for _, a := range args {
		key, value, _ := strings.Cut(a, "=")
		v := v1.Volume{Name: key}
		switch key {
		case "config":
			v.ConfigMap = &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: value}, DefaultMode: &mode}
			p.volumes = append(p.volumes, volume{"kubernetes.io~configmap/config", m.objectOf("ConfigMap", value), dataKey})
		case "secret":
			v.Secret = &v1.SecretVolumeSource{SecretName: value, DefaultMode: &mode}
			p.volumes = append(p.volumes, volume{"kubernetes.io~secret/secret", m.objectOf("Secret", value), dataKey})
			m.secretive = true
		case "token":
			life := int64(tokenLife / time.Second)
			v.Projected = &v1.ProjectedVolumeSource{DefaultMode: &mode, Sources: []v1.VolumeProjection{
				{ServiceAccountToken: &v1.ServiceAccountTokenProjection{ExpirationSeconds: &life, Path: "token"}},
			}}
			s.ServiceAccountName = "default"
			p.volumes = append(p.volumes, volume{"kubernetes.io~projected/token", nil, "token"})
			m.secretive = true
		case "csi":
			v = p.addCSI(value)
		default:
			continue
		}
		s.Volumes = append(s.Volumes, v)
		for _, list := range [][]v1.Container{s.Containers, s.InitContainers} {
			for i := range list {
				list[i].VolumeMounts = append(list[i].VolumeMounts, v1.VolumeMount{Name: v.Name, MountPath: "/" + v.Name, ReadOnly: true})
			}
		}
	}
}

// objectsFor are the objects that the API server has for a snapshot. m.mu is held.
func (m *machine) objectsFor() (configs []*v1.ConfigMap, secrets []*v1.Secret) {
	for _, key := range slices.Sorted(maps.Keys(m.objects)) {
		o := m.objects[key]
		meta := metav1.ObjectMeta{Namespace: "default", Name: o.name, UID: types.UID(key), ResourceVersion: strconv.Itoa(o.version)}
		switch {
		case o.gone:
		case o.kind == "Secret":
			secrets = append(secrets, &v1.Secret{ObjectMeta: meta, Data: map[string][]byte{dataKey: []byte(o.text())}})
		default:
			configs = append(configs, &v1.ConfigMap{ObjectMeta: meta, Data: map[string]string{dataKey: o.text()}})
		}
	}
	return configs, secrets
}

// cache are the objects as one life heard of them last.
type cache struct {
	l *life

	mu   sync.Mutex
	have map[string]*plugins.ContentObject
}

func (c *cache) hear(configs []*v1.ConfigMap, secrets []*v1.Secret) {
	have := map[string]*plugins.ContentObject{}
	for _, o := range configs {
		have["ConfigMap/"+o.Name] = plugins.ObjectOfConfigMap(o)
	}
	for _, o := range secrets {
		have["Secret/"+o.Name] = plugins.ObjectOfSecret(o)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.have = have
}

// Get implements plugins.ContentSource; it may fail and hang, as one does that asks an API server.
func (c *cache) Get(ctx context.Context, kind, _, name string) (out *plugins.ContentObject, err error) {
	err = c.l.gate().call(ctx, "Get", "", false, nil, func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if out = c.have[kind+"/"+name]; out == nil {
			return plugins.ErrNotFound
		}
		return nil
	})
	return out, err
}

// issuer issues tokens.
type issuer struct{ l *life }

func (i issuer) Request(ctx context.Context, _, _ string, spec authv1.TokenRequestSpec) (out plugins.IssuedToken, err error) {
	m := i.l.m
	err = i.l.gate().call(ctx, "Token", "", false, nil, func() error {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.apiDown {
			return errNoAPI
		}
		ends := m.rightTime().Add(time.Duration(*spec.ExpirationSeconds) * time.Second)
		out = plugins.IssuedToken{Value: fmt.Sprintf("%s token %d", secretMark, ends.Unix()), Expires: ends, Seconds: spec.ExpirationSeconds}
		return nil
	})
	return out, err
}

// waker has pods looked at whose volumes became ready.
type waker struct{ host part.Host }

func (*waker) Name() string { return "volumes of the simulation" }

func (w *waker) Join(h part.Host) error {
	w.host = h
	return nil
}

// makeVolumes makes the volumes of a life.
func (l *life) makeVolumes() (*volumemgr.Manager, part.Part, error) {
	l.cache = &cache{l: l}
	tokens, err := plugins.NewTokenCache(plugins.TokenCacheConfig{Requester: issuer{l}})
	if err != nil {
		return nil, nil, err
	}
	var list []volumemgr.Plugin
	noSwap := true
	for _, kind := range []plugins.ContentKind{plugins.ContentConfigMap, plugins.ContentSecret, plugins.ContentProjected} {
		p, e := plugins.NewContent(kind, plugins.ContentConfig{Mounter: mounter{l}, Source: l.cache, Tokens: tokens, NoSwap: &noSwap, BootID: l.m.driver.bootID()})
		err = errors.Join(err, e)
		list = append(list, p)
	}
	if err != nil {
		return nil, nil, err
	}
	w := &waker{}
	cfg := volumemgr.Config{
		Root: l.m.root(), Plugins: list, Mounter: plugins.Mounter(mounter{l}),
		Ready: func(uid types.UID) { w.host.Resync(uid) },
	}
	if s := l.m.storage; s != nil {
		if err := l.makeCSI(); err != nil {
			return nil, nil, err
		}
		cfg.Plugins, cfg.Claims = append(cfg.Plugins, l.csi.Plugin()), s
	}
	v, err := volumemgr.New(cfg)
	return v, w, err
}

// judgeVolumes looks at the volumes of the containers that run: what was there is there, and
// it is what the API server has, unless something is in the way. m.mu is held.
func (m *machine) judgeVolumes(p *pod, calm bool) {
	if len(p.volumes)+len(p.published) == 0 || !p.wanted || p.over || m.running(p.object.UID, p.object.Spec.Containers[0].Name) == 0 {
		return
	}
	m.judgePublished(p)
	for _, v := range p.volumes {
		text, err := os.ReadFile(filepath.Join(m.root(), "pods", string(p.object.UID), "volumes", v.dir, v.file))
		if err != nil {
			m.wrong("%s runs without its volume %s", p.object.Name, v.dir)
			continue
		}
		if !calm {
			continue
		}
		if o := v.object; o != nil {
			if !o.gone && string(text) != o.text() && time.Since(o.since) > startBound {
				m.wrong("volume %s of %s: %q %v after it became %q", v.dir, p.object.Name, text, time.Since(o.since), o.text())
			}
			continue
		}
		f := strings.Fields(string(text))
		if ends, err := strconv.ParseInt(f[len(f)-1], 10, 64); err != nil || m.rightTime().Unix() > ends {
			m.wrong("the token of %s ended %v ago: %q", p.object.Name, m.rightTime().Sub(time.Unix(ends, 0)), text)
		}
	}
}

// judgeVolumesAtStart looks at the volumes of a pod of which a container is to start. m.mu
// is held.
func (m *machine) judgeVolumesAtStart(p *pod) {
	m.judgePublished(p)
	for _, v := range p.volumes {
		if _, err := os.Stat(filepath.Join(m.root(), "pods", string(p.object.UID), "volumes", v.dir, v.file)); err != nil {
			m.wrong("a container of %s is started without volume %s", p.object.Name, v.dir)
		}
	}
}
