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

// Plugin is a program that knows credentials for some images (KEP-2133). It is
// started for each question that no remembered answer covers, and gets the
// question on its standard input.
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
	// APIVersion is that of its questions and answers, such as
	// credentialprovider.kubelet.k8s.io/v1beta1; that of v1.
	APIVersion string
	// Token has it asked with tokens of service accounts; nil for none. It takes
	// version v1.
	Token *PluginToken
}

// PluginsConfig holds what Plugins needs.
type PluginsConfig struct {
	Dir     string
	Plugins []Plugin
	// Accounts is for Plugins with a Token; without it none of these is asked for
	// pods that have a service account.
	Accounts Accounts
	// Hash stands for the configuration in metrics, as sha256:...; none. It shows
	// on a dashboard whether all nodes run with the same configuration.
	Hash    string
	Metrics prometheus.Registerer // not exported
}

// Plugins is a [PodKeyring] that asks programs. Its methods may be called from
// any goroutine.
type Plugins struct {
	cfg PluginsConfig
	met *pluginMetrics
	// run is exec but for tests.
	run func(ctx context.Context, p *Plugin, stdin []byte) ([]byte, error)
	// flight makes one run of the questions that are the same at a time.
	flight singleflight.Group

	// mu guards cache, which is by cacheKey.
	mu    sync.Mutex
	cache map[string]answer
}

// answer is what a plugin said. The credentials may be none, which is an answer
// too.
type answer struct {
	creds []credential
	until time.Time
}

// pluginVersions are those of questions and answers of credential providers.
var pluginVersions = []string{pluginVersion, pluginVersion + "beta1", pluginVersion + "alpha1"}

const (
	pluginVersion = "credentialprovider.kubelet.k8s.io/v1"
	// pluginTimeout bounds one run, as in the kubelet.
	pluginTimeout = time.Minute
	// maxAnswer bounds an answer, in bytes, and maxComplaint what is kept of
	// standard error.
	maxAnswer    = 1 << 20
	maxComplaint = 4 << 10
	// maxLasts is how long an answer is remembered at most. An answer that asks
	// for longer is cut to that.
	maxLasts = 365 * 24 * time.Hour
	// maxAnswers bounds the memory of answers; those that are over go first.
	maxAnswers = 1000
)

// NewPlugins checks cfg. No program is run before it is wanted. Programs that
// are missing or not executable are errors here already, rather than at the
// first pull. All faults are returned together.
func NewPlugins(cfg PluginsConfig) (*Plugins, error) {
	var errs []error
	names := map[string]bool{}
	for i, p := range cfg.Plugins {
		at := func(field, format string, args ...any) {
			errs = append(errs, errors.New(fmt.Sprintf("Plugins[%d].%s ", i, field)+fmt.Sprintf(format, args...)))
		}
		switch {
		// A path would lead out of Dir; the name is also part of keys and metrics.
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

// Credentials implements Keyring: of each plugin that knows the image, in
// order.
func (p *Plugins) Credentials(ctx context.Context, image string) ([]*runtimeapi.AuthConfig, error) {
	found, err := p.PodCredentials(ctx, image, nil)
	var all []*runtimeapi.AuthConfig
	for _, c := range found {
		all = append(all, c.Auth)
	}
	return all, err
}

// PodCredentials implements PodKeyring. Plugins are asked one after the other.
// One that fails is named in the error and costs its own answers only.
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
			errs = append(errs, fmt.Errorf("credential provider %s: %w", plugin.Name, err))
		}
	}
	return all, errors.Join(errs...)
}

// knowing are the plugins that know an image, in order.
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

// version is the API version of questions to the plugin and of its answers.
func (p *Plugin) version() string { return cmp.Or(p.APIVersion, pluginVersion) }

// The parts of an image's name that an answer may be for (cacheKeyType of the
// kubelet's credential provider API).
const (
	forImage    = "Image"
	forRegistry = "Registry"
	forAll      = "Global"
)

// cacheKey is what an answer is remembered by: the plugin, the part of the
// image's name that it is for, and who asked. Without the last, a pod could get
// what was given to another.
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

// ask returns what the plugin says of the image, or said not long ago. Of
// several callers at a time one asks. A run goes on when its caller gives up,
// for the others that wait and for the memory of answers; pluginTimeout ends
// it.
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

// remembered returns an answer that is still good. Which part of the name an
// answer was for is known only from the answer, so that all are looked up, the
// narrowest first.
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

// fresh runs the plugin and checks its answer. Errors show no part of the
// answer but the fields that hold no secrets.
func (p *Plugins) fresh(ctx context.Context, plugin *Plugin, image string, who identity) ([]credential, error) {
	question := map[string]any{"apiVersion": plugin.version(), "kind": "CredentialProviderRequest", "image": image}
	// Left out rather than empty: versions before v1 do not have these fields.
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
		return nil, errors.New("its answer is not valid JSON") // never show a part of it
	}
	// An answer of another version may mean something else by the same fields.
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
			return nil, errors.New("answers with the pod's token, which other pods of the service account would get; want cacheType: Token")
		}
		creds = append(creds, credential{pattern: registryPattern(pattern), auth: &runtimeapi.AuthConfig{Username: a.Username, Password: a.Password}})
	}
	// A map has no order; equal answers are to give equal lists, and so one pull.
	slices.SortFunc(creds, func(a, b credential) int { return strings.Compare(a.pattern, b.pattern) })
	if lasts > 0 {
		p.remember(cacheKey(plugin.Name, response.CacheKeyType, image, who.remembered), answer{creds, time.Now().Add(lasts)})
	}
	return creds, nil
}

// remember keeps an answer. Answers that are over go when there are too many;
// if that does not do, all go: it costs runs, and no pull.
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
// error. It blocks until the program ends or ctx does, which kills it.
func (p *Plugins) exec(ctx context.Context, plugin *Plugin, stdin []byte) ([]byte, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(p.cfg.Dir, plugin.Name), plugin.Args...)
	cmd.Env = append(os.Environ(), plugin.Env...)
	cmd.Stdin = bytes.NewReader(stdin)
	// One byte more than is allowed shows that there was more.
	out, complaint := limited{limit: maxAnswer + 1}, limited{limit: maxComplaint}
	cmd.Stdout, cmd.Stderr = &out, &complaint
	cmd.WaitDelay = time.Second // for children that hold its output open
	if err := cmd.Run(); err != nil {
		// "signal: killed" would not tell why.
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

// limited keeps the beginning of what is written to it.
type limited struct {
	bytes.Buffer
	limit int
}

// Write never fails: who writes goes on to its end. An error would end the
// copying, and the program would then hang on a full pipe or die of it.
func (l *limited) Write(p []byte) (int, error) {
	_, _ = l.Buffer.Write(p[:min(len(p), l.limit-l.Len())])
	return len(p), nil
}

// ReadFrom is not that of the Buffer, which has no limit. io.Copy would
// otherwise find it, and fill the memory with whatever the program writes.
func (l *limited) ReadFrom(r io.Reader) (int64, error) {
	return io.Copy(writerOnly{l}, r)
}

// writerOnly hides all but Write.
type writerOnly struct{ io.Writer }
