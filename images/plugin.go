package images

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/distribution/reference"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/singleflight"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Plugin is a credential provider plugin (KEP-2133): a program that returns credentials for some
// images. It is executed for each request that no cached answer covers, with the request on its
// standard input.
type Plugin struct {
	// Name is the name of its file in PluginsConfig.Dir.
	Name string
	// Match has patterns of the images that the plugin is called for: host[:port][/path]. Labels
	// of the host may be globs, the port must be equal, and the path is a prefix.
	Match []string
	// CacheDuration applies to answers that name no duration. If it is 0, they are not cached.
	CacheDuration time.Duration
	Args          []string
	Env           []string // NAME=value, in addition to this process's environment
	// APIVersion is the version of requests and answers, such as
	// credentialprovider.kubelet.k8s.io/v1beta1. The default is v1.
	APIVersion string
	// Token adds tokens of service accounts to requests. If it is nil, requests have no token. It
	// requires APIVersion v1.
	Token *PluginToken
}

// PluginsConfig configures [Plugins].
type PluginsConfig struct {
	Dir     string
	Plugins []Plugin
	// Accounts is required by plugins with a Token. Without it, they are not used for pods with a
	// service account.
	Accounts Accounts
	// Hash is exported as a metric label, as sha256:..., to compare the configuration of nodes.
	// If it is "", there is no such metric.
	Hash    string
	Metrics prometheus.Registerer // if nil, metrics are not exported
}

// Plugins is a [PodKeyring] that executes credential provider plugins. Its methods may be called
// from any goroutine.
type Plugins struct {
	cfg PluginsConfig
	met *pluginMetrics
	// run is exec; tests replace it.
	run func(ctx context.Context, p *Plugin, stdin []byte) ([]byte, error)
	// flight merges concurrent equal requests.
	flight singleflight.Group

	// mu guards cache, whose keys are those of cacheKey.
	mu    sync.Mutex
	cache map[string]answer
}

// answer is a plugin's answer. It may have no credentials.
type answer struct {
	creds []credential
	until time.Time
}

// pluginVersions are the supported API versions.
var pluginVersions = []string{pluginVersion, pluginVersion + "beta1", pluginVersion + "alpha1"}

const (
	pluginVersion = "credentialprovider.kubelet.k8s.io/v1"
	// pluginTimeout limits one run, as in the kubelet.
	pluginTimeout = time.Minute
	// maxAnswer limits the bytes of an answer. maxComplaint limits the bytes of the standard
	// error.
	maxAnswer    = 1 << 20
	maxComplaint = 4 << 10
	// maxLasts limits the cache duration of an answer.
	maxLasts = 365 * 24 * time.Hour
	// maxAnswers limits the cache; expired answers are removed first.
	maxAnswers = 1000
)

// NewPlugins checks cfg and returns a Plugins. It executes nothing. The error has all mistakes,
// including missing and non-executable programs.
func NewPlugins(cfg PluginsConfig) (*Plugins, error) {
	var errs []error
	names := map[string]bool{}
	for i, p := range cfg.Plugins {
		at := func(field, format string, args ...any) {
			errs = append(errs, errors.New(fmt.Sprintf("Plugins[%d].%s ", i, field)+fmt.Sprintf(format, args...)))
		}
		switch {
		// A name with a slash could lead out of Dir. The name is also part of cache keys and
		// metrics.
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
		if p.APIVersion != "" && !slices.Contains(pluginVersions, p.APIVersion) {
			at("APIVersion", "%q: want one of %s", p.APIVersion, strings.Join(pluginVersions, ", "))
		}
		if t := p.Token; t != nil {
			switch {
			case p.version() != pluginVersion:
				at("Token", "is given beside APIVersion %s: want %s", p.APIVersion, pluginVersion)
			case t.Audience == "":
				at("Token.Audience", "is empty; want the audience of tokens")
			case !t.Required && len(t.RequiredAnnotations) > 0:
				at("Token.RequiredAnnotations", "are given and Required is false; want true beside them")
			}
		}
	}
	met, err := newPluginMetrics(cfg.Metrics, cfg.Hash)
	if err := errors.Join(append(errs, err)...); err != nil {
		return nil, fmt.Errorf("images: %w", err)
	}
	p := &Plugins{cfg: cfg, met: met, cache: map[string]answer{}}
	p.run = p.exec
	return p, nil
}

// Credentials implements Keyring. It asks each plugin that matches the image, in order.
func (p *Plugins) Credentials(ctx context.Context, image string) ([]*runtimeapi.AuthConfig, error) {
	found, err := p.PodCredentials(ctx, image, nil)
	var all []*runtimeapi.AuthConfig
	for _, c := range found {
		all = append(all, c.Auth)
	}
	return all, err
}

// PodCredentials implements PodKeyring. It calls the plugins one after the other. If one fails,
// the error names it, and the credentials of the others are returned.
func (p *Plugins) PodCredentials(ctx context.Context, image string, pod *v1.Pod) ([]PodCredential, error) {
	var all []PodCredential
	var errs []error
	for plugin := range p.knowing(image) {
		who, use, err := p.identify(ctx, plugin, pod)
		if use && err == nil {
			var creds []credential
			creds, err = p.ask(ctx, plugin, image, who)
			// A plugin may answer for more images than it was asked about.
			for _, auth := range auths(choose(image, creds)) {
				all = append(all, PodCredential{auth, who.account})
			}
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("get credentials from provider %s: %w", plugin.Name, err))
		}
	}
	return all, errors.Join(errs...)
}

// knowing iterates over the plugins with a pattern that matches the image, in order.
func (p *Plugins) knowing(image string) iter.Seq[*Plugin] {
	return func(yield func(*Plugin) bool) {
		for i := range p.cfg.Plugins {
			plugin := &p.cfg.Plugins[i]
			if slices.ContainsFunc(plugin.Match, func(m string) bool { return matches(registryPattern(m), image) }) && !yield(plugin) {
				return
			}
		}
	}
}

// version returns the API version of the plugin's requests and answers.
func (p *Plugin) version() string { return cmp.Or(p.APIVersion, pluginVersion) }

// Values of cacheKeyType: the part of the image's name for which an answer may be cached.
const (
	forImage    = "Image"
	forRegistry = "Registry"
	forAll      = "Global"
)

// cacheKey returns the cache key of an answer: the plugin, the part of the image's name, and the
// identity that asked. Without the identity, a pod could get credentials of another one.
func cacheKey(plugin, kind, image, who string) string {
	switch kind {
	case forRegistry:
		if named, err := reference.ParseDockerRef(image); err == nil {
			image = reference.Domain(named)
		}
	case forAll:
		image = ""
	}
	return plugin + "\x00" + kind + "\x00" + image + "\x00" + who
}

// ask returns the plugin's credentials for an image, from the cache if possible. Concurrent equal
// requests share a run. The run continues even if the caller gives up, since others may wait for
// it and its answer is cached. pluginTimeout limits it.
func (p *Plugins) ask(ctx context.Context, plugin *Plugin, image string, who identity) ([]credential, error) {
	if creds, ok := p.remembered(plugin, image, who); ok {
		return creds, nil
	}
	result := p.flight.DoChan(plugin.Name+"\x00"+image+"\x00"+who.asked, func() (any, error) {
		rctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), pluginTimeout)
		defer cancel()
		return p.fresh(rctx, plugin, image, who)
	})
	select {
	case r := <-result:
		creds, _ := r.Val.([]credential)
		return creds, r.Err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// remembered returns a valid answer from the cache. It looks up all parts of the name, the most
// specific first.
func (p *Plugins) remembered(plugin *Plugin, image string, who identity) ([]credential, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, kind := range []string{forImage, forRegistry, forAll} {
		if a, ok := p.cache[cacheKey(plugin.Name, kind, image, who.remembered)]; ok && time.Now().Before(a.until) {
			return a.creds, true
		}
	}
	return nil, false
}

// fresh executes the plugin and checks its answer. Errors contain only fields of the answer that
// hold no secrets.
func (p *Plugins) fresh(ctx context.Context, plugin *Plugin, image string, who identity) ([]credential, error) {
	question := map[string]any{"apiVersion": plugin.version(), "kind": "CredentialProviderRequest", "image": image}
	// Omitted rather than set to "", since versions before v1 do not have these fields.
	if who.token != "" {
		question["serviceAccountToken"] = who.token
	}
	if len(who.annotations) > 0 {
		question["serviceAccountAnnotations"] = who.annotations
	}
	request, err := json.Marshal(question)
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	out, err := p.run(ctx, plugin, request)
	p.met.ran(plugin.Name, time.Since(begun), err)
	if err != nil {
		return nil, err
	}
	var response struct {
		APIVersion, Kind, CacheKeyType string

		CacheDuration *string
		Auth          map[string]struct{ Username, Password string }
	}
	if err := json.Unmarshal(out, &response); err != nil {
		return nil, errors.New("its answer is not valid JSON") // the error must not contain a part of it
	}
	// In another version, the same fields may have another meaning.
	if response.APIVersion != plugin.version() || response.Kind != "CredentialProviderResponse" {
		return nil, fmt.Errorf("answers with %.64q of %.64q; want CredentialProviderResponse of %s", response.Kind, response.APIVersion, plugin.version())
	}
	if !slices.Contains([]string{forImage, forRegistry, forAll}, response.CacheKeyType) {
		return nil, fmt.Errorf("cacheKeyType %.64q: want %s, %s or %s", response.CacheKeyType, forImage, forRegistry, forAll)
	}
	lasts := plugin.CacheDuration
	if response.CacheDuration != nil {
		if lasts, err = time.ParseDuration(*response.CacheDuration); err != nil {
			return nil, fmt.Errorf("cacheDuration %.64q: want a duration such as 10m", *response.CacheDuration)
		}
		lasts = min(lasts, maxLasts)
	}
	var creds []credential
	for pattern, a := range response.Auth {
		if who.token != "" && a.Password == who.token && plugin.Token.ByAccount {
			return nil, errors.New("answers with the pod's token, which a cache would give to other pods of the service account; want cacheType: Token")
		}
		creds = append(creds, credential{pattern: registryPattern(pattern), auth: &runtimeapi.AuthConfig{Username: a.Username, Password: a.Password}})
	}
	// Sorted, so that equal answers give equal lists and share one pull.
	slices.SortFunc(creds, func(a, b credential) int { return strings.Compare(a.pattern, b.pattern) })
	if lasts > 0 {
		p.remember(cacheKey(plugin.Name, response.CacheKeyType, image, who.remembered), answer{creds, time.Now().Add(lasts)})
	}
	return creds, nil
}

// remember caches an answer. A full cache drops expired answers or, if there are none, all.
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

// exec runs a plugin's program until it ends or ctx ends, which kills it. The error contains its
// standard error.
func (p *Plugins) exec(ctx context.Context, plugin *Plugin, stdin []byte) ([]byte, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(p.cfg.Dir, plugin.Name), plugin.Args...)
	cmd.Env = append(os.Environ(), plugin.Env...)
	cmd.Stdin = bytes.NewReader(stdin)
	// One byte above the limit, to detect that it was exceeded.
	out, complaint := limited{limit: maxAnswer + 1}, limited{limit: maxComplaint}
	cmd.Stdout, cmd.Stderr = &out, &complaint
	cmd.WaitDelay = time.Second // for child processes that keep the output open
	if err := cmd.Run(); err != nil {
		// Clearer than the "signal: killed" of err.
		if ctx.Err() != nil {
			err = fmt.Errorf("no answer within %v", pluginTimeout)
		}
		if text := strings.TrimSpace(complaint.String()); text != "" {
			err = fmt.Errorf("%w: %.500s", err, text)
		}
		return nil, err
	}
	if out.Len() > maxAnswer {
		return nil, fmt.Errorf("its answer has more than %d bytes", maxAnswer)
	}
	return out.Bytes(), nil
}

// limited keeps at most limit bytes of what is written to it, and drops the rest.
type limited struct {
	bytes.Buffer
	limit int
}

// Write never fails. An error would end the copying, and the program would then block on a full
// pipe or be killed by SIGPIPE.
func (l *limited) Write(p []byte) (int, error) {
	_, _ = l.Buffer.Write(p[:min(len(p), l.limit-l.Len())])
	return len(p), nil
}

// ReadFrom replaces Buffer.ReadFrom, which io.Copy would call and which has no limit.
func (l *limited) ReadFrom(r io.Reader) (int64, error) {
	return io.Copy(writerOnly{l}, r)
}

// writerOnly hides all methods except Write.
type writerOnly struct{ io.Writer }
