package images

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/distribution/reference"
	"golang.org/x/sync/singleflight"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Plugin is a program that knows credentials for some images (KEP-2133,
// API version credentialprovider.kubelet.k8s.io/v1).
type Plugin struct {
	// Name is that of its file in PluginsConfig.Dir.
	Name string
	// Match are the images that it is asked about: a host, whose labels may
	// be globs, with a port and a path if they are to be equal and its
	// beginning.
	Match []string
	// CacheDuration is for answers that name none; 0 asks each time.
	CacheDuration time.Duration
	Args          []string
	Env           []string // NAME=value, beside this process's own
}

// PluginsConfig holds what Plugins needs.
type PluginsConfig struct {
	Dir     string
	Plugins []Plugin
}

// Plugins is a Keyring that asks programs.
type Plugins struct {
	cfg    PluginsConfig
	run    func(ctx context.Context, p *Plugin, stdin []byte) ([]byte, error)
	flight singleflight.Group

	mu    sync.Mutex
	cache map[string]answer
}

// answer is what a plugin said.
type answer struct {
	creds []credential
	until time.Time
}

const (
	pluginVersion = "credentialprovider.kubelet.k8s.io/v1"
	// pluginTimeout bounds one run, as in the kubelet.
	pluginTimeout = time.Minute
	// maxAnswers bounds the memory of answers; those that are over go first.
	maxAnswers = 1000
)

// NewPlugins checks cfg. No program is run before it is wanted.
func NewPlugins(cfg PluginsConfig) (*Plugins, error) {
	var errs []error
	names := map[string]bool{}
	for i, p := range cfg.Plugins {
		at := func(field, format string, args ...any) {
			errs = append(errs, errors.New(fmt.Sprintf("Plugins[%d].%s ", i, field)+fmt.Sprintf(format, args...)))
		}
		switch {
		case p.Name == "" || p.Name == "." || p.Name == ".." || strings.ContainsAny(p.Name, "/ "):
			at("Name", "%q: want the name of a file, without a path or blanks", p.Name)
		case names[p.Name]:
			at("Name", "%q stands there twice", p.Name)
		default:
			if fi, err := os.Stat(filepath.Join(cfg.Dir, p.Name)); err != nil {
				at("Name", "%q: %v", p.Name, err)
			} else if fi.IsDir() || fi.Mode()&0o111 == 0 {
				at("Name", "%q: not a program that may be run", p.Name)
			}
		}
		names[p.Name] = true
		if len(p.Match) == 0 {
			at("Match", "is empty; want the images that the plugin knows")
		}
		for _, m := range p.Match {
			if m == "" || strings.Contains(m, "://") {
				at("Match", "%q: want host[:port][/path]", m)
			}
		}
		if p.CacheDuration < 0 {
			at("CacheDuration", "%v: want 0 or more", p.CacheDuration)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("images: %w", err)
	}
	p := &Plugins{cfg: cfg, cache: map[string]answer{}}
	p.run = p.exec
	return p, nil
}

// Credentials implements Keyring: of each plugin that knows the image, in
// order.
func (p *Plugins) Credentials(ctx context.Context, image string) ([]*runtimeapi.AuthConfig, error) {
	var all []*runtimeapi.AuthConfig
	var errs []error
	for i := range p.cfg.Plugins {
		plugin := &p.cfg.Plugins[i]
		if !slices.ContainsFunc(plugin.Match, func(m string) bool { return matches(registryPattern(m), image) }) {
			continue
		}
		creds, err := p.ask(ctx, plugin, image)
		if err != nil {
			errs = append(errs, fmt.Errorf("credential provider %s: %w", plugin.Name, err))
			continue
		}
		all = append(all, auths(choose(image, creds))...)
	}
	return all, errors.Join(errs...)
}

// The parts of an image's name that an answer may be for.
const (
	forImage    = "Image"
	forRegistry = "Registry"
	forAll      = "Global"
)

func cacheKey(plugin, kind, image string) string {
	switch kind {
	case forRegistry:
		if named, err := reference.ParseDockerRef(image); err == nil {
			image = reference.Domain(named)
		}
	case forAll:
		image = ""
	}
	return plugin + "\x00" + kind + "\x00" + image
}

// ask returns what the plugin says of the image, or said not long ago. Of
// several callers at a time one asks.
func (p *Plugins) ask(ctx context.Context, plugin *Plugin, image string) ([]credential, error) {
	if creds, ok := p.remembered(plugin, image); ok {
		return creds, nil
	}
	result := p.flight.DoChan(plugin.Name+"\x00"+image, func() (any, error) {
		rctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), pluginTimeout)
		defer cancel()
		return p.fresh(rctx, plugin, image)
	})
	select {
	case r := <-result:
		creds, _ := r.Val.([]credential)
		return creds, r.Err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *Plugins) remembered(plugin *Plugin, image string) ([]credential, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, kind := range []string{forImage, forRegistry, forAll} {
		if a, ok := p.cache[cacheKey(plugin.Name, kind, image)]; ok && time.Now().Before(a.until) {
			return a.creds, true
		}
	}
	return nil, false
}

// fresh runs the plugin.
func (p *Plugins) fresh(ctx context.Context, plugin *Plugin, image string) ([]credential, error) {
	request, err := json.Marshal(map[string]string{
		"apiVersion": pluginVersion, "kind": "CredentialProviderRequest", "image": image,
	})
	if err != nil {
		return nil, err
	}
	out, err := p.run(ctx, plugin, request)
	if err != nil {
		return nil, err
	}
	var response struct {
		APIVersion, Kind, CacheKeyType string

		CacheDuration *string
		Auth          map[string]struct{ Username, Password string }
	}
	if err := json.Unmarshal(out, &response); err != nil {
		return nil, errors.New("its answer is not valid JSON") // never show a part of it
	}
	if response.APIVersion != pluginVersion || response.Kind != "CredentialProviderResponse" {
		return nil, fmt.Errorf("it answers with %q of %q; want CredentialProviderResponse of %s", response.Kind, response.APIVersion, pluginVersion)
	}
	if !slices.Contains([]string{forImage, forRegistry, forAll}, response.CacheKeyType) {
		return nil, fmt.Errorf("cacheKeyType %q: want %s, %s or %s", response.CacheKeyType, forImage, forRegistry, forAll)
	}
	lasts := plugin.CacheDuration
	if response.CacheDuration != nil {
		if lasts, err = time.ParseDuration(*response.CacheDuration); err != nil {
			return nil, fmt.Errorf("cacheDuration %q: want a duration such as 10m", *response.CacheDuration)
		}
	}
	var creds []credential
	for pattern, a := range response.Auth {
		creds = append(creds, credential{pattern: registryPattern(pattern), auth: &runtimeapi.AuthConfig{Username: a.Username, Password: a.Password}})
	}
	slices.SortFunc(creds, func(a, b credential) int { return strings.Compare(a.pattern, b.pattern) })
	if lasts > 0 {
		p.remember(cacheKey(plugin.Name, response.CacheKeyType, image), answer{creds, time.Now().Add(lasts)})
	}
	return creds, nil
}

func (p *Plugins) remember(key string, a answer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.cache) >= maxAnswers {
		now := time.Now()
		for k, old := range p.cache {
			if !now.Before(old.until) {
				delete(p.cache, k)
			}
		}
		if len(p.cache) >= maxAnswers {
			clear(p.cache)
		}
	}
	p.cache[key] = a
}

// exec runs a plugin's program. What it says on standard error is part of the
// error.
func (p *Plugins) exec(ctx context.Context, plugin *Plugin, stdin []byte) ([]byte, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(p.cfg.Dir, plugin.Name), plugin.Args...)
	cmd.Env = append(os.Environ(), plugin.Env...)
	cmd.Stdin = bytes.NewReader(stdin)
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	cmd.WaitDelay = time.Second // for children that hold its output open
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("no answer within %v", pluginTimeout)
		}
		if text := strings.TrimSpace(complaint.String()); text != "" {
			err = fmt.Errorf("%w: %.500s", err, text)
		}
		return nil, err
	}
	return out.Bytes(), nil
}
