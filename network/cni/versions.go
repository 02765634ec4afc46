package cni

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/version"
)

// askAgain is the pause before VERSION is called again for a plugin that did not answer. If the
// plugin's file changes, VERSION is called again at once.
const askAgain = 30 * time.Second

// maxAsked limits the concurrent requests for versions.
const maxAsked = 4

// errUnanswered is the error of a plugin that did not return its versions, for
// example because its file is being written.
var errUnanswered = errors.New("plugin does not report its versions")

// versions stores the versions of plugins. Each plugin is asked once. Calls of check must not be
// concurrent.
type versions struct {
	binDirs []string
	ask     func(ctx context.Context, path string) ([]string, error)
	now     func() time.Time

	mu    sync.Mutex
	known map[string]answer // answers by path of the executable
	used  map[string]bool   // paths that were looked up since the last sweep
}

// answer is a plugin's answer to VERSION.
type answer struct {
	of     os.FileInfo
	speaks []string
	err    error // why the plugin gave no answer; nil if it did
	at     time.Time
}

// check returns the highest version of a list that all its plugins support. The error errUnanswered
// means that a plugin did not answer.
func (v *versions) check(ctx context.Context, l *list) (string, error) {
	kinds := slices.Compact(slices.Sorted(slices.Values(l.kinds())))
	answers := make([]answer, len(kinds))
	places := make(chan struct{}, maxAsked)
	var wg sync.WaitGroup
	for i, kind := range kinds {
		wg.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			answers[i] = v.of(ctx, kind)
		})
	}
	wg.Wait()
	var unanswered error
	left := l.offers
	for i, a := range answers {
		switch {
		case errors.Is(a.err, errUnanswered):
			unanswered = errors.Join(unanswered, a.err)
			continue
		case a.err != nil:
			return "", a.err
		}
		both := slices.DeleteFunc(slices.Clone(left), func(s string) bool { return !slices.Contains(a.speaks, s) })
		if len(both) == 0 {
			return "", fmt.Errorf("plugin %s supports the versions %q; want one of %q", kinds[i], a.speaks, left)
		}
		left = both
	}
	if unanswered != nil {
		return "", unanswered
	}
	return left[0], nil
}

// of returns a plugin's answer to VERSION. It runs the plugin if no answer is stored
// for its executable.
func (v *versions) of(ctx context.Context, kind string) answer {
	path, info, err := findPlugin(kind, v.binDirs)
	if err != nil {
		return answer{err: err}
	}
	v.mu.Lock()
	a, ok := v.known[path]
	v.used[path] = true
	v.mu.Unlock()
	if ok && same(a.of, info) && (a.err == nil || v.now().Sub(a.at) < askAgain) {
		return a
	}
	a = answer{of: info}
	if a.speaks, err = v.ask(ctx, path); err != nil {
		a.err = fmt.Errorf("plugin %s: %w: %w", kind, errUnanswered, short(err))
	}
	a.at = v.now()
	v.mu.Lock()
	v.known[path] = a
	v.mu.Unlock()
	return a
}

// same reports whether an executable is unchanged between two looks at it.
func same(before, after os.FileInfo) bool {
	return os.SameFile(before, after) && before.ModTime().Equal(after.ModTime()) && before.Size() == after.Size()
}

// sweep drops the answers that were not used since the last sweep.
func (v *versions) sweep() {
	v.mu.Lock()
	defer v.mu.Unlock()
	for path := range v.known {
		if !v.used[path] {
			delete(v.known, path)
		}
	}
	v.used = map[string]bool{}
}

// askVersion asks a plugin for its versions, and returns the supported ones. A plugin that does not
// know VERSION counts as 0.1.0.
func (p *Plugin) askVersion(ctx context.Context, path string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.VersionTimeout+grace)
	defer cancel()
	return p.asksVer.Do(ctx, path, func() ([]string, error) {
		ctx, cancel := context.WithTimeout(ctx, p.cfg.VersionTimeout)
		defer cancel()
		var left sync.WaitGroup
		defer left.Wait()
		return spoken(ctx, p.executor(nil, nil, &left), path)
	})
}

func spoken(ctx context.Context, x *executor, path string) ([]string, error) {
	// Old plugins require these variables for every verb.
	args := invoke.Args{Command: "VERSION", NetNS: "dummy", IfName: "dummy", Path: "dummy"}
	stdin, err := json.Marshal(map[string]string{"cniVersion": version.Current()})
	if err != nil {
		return nil, err
	}
	out, err := x.ExecPlugin(ctx, path, stdin, args.AsEnv())
	var e *pluginError
	if errors.As(err, &e) && e.text == "unknown CNI_COMMAND: VERSION" {
		return []string{"0.1.0"}, nil
	}
	if err != nil {
		return nil, err
	}
	info, err := x.Decode(out)
	if err != nil {
		return nil, err
	}
	var speaks []string
	for _, s := range version.All.SupportedVersions() {
		if slices.Contains(info.SupportedVersions(), s) {
			speaks = append(speaks, s)
		}
	}
	if len(speaks) == 0 {
		return nil, fmt.Errorf("plugin has %d versions, none of them supported; want one of %q", len(info.SupportedVersions()), version.All.SupportedVersions())
	}
	return speaks, nil
}
