package images

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func pairs(auths []*runtimeapi.AuthConfig) string {
	var out []string
	for _, a := range auths {
		out = append(out, a.Username+":"+a.Password)
	}
	return strings.Join(out, " ")
}

// A file is read again when it has changed, and mistakes in it are reported.
func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.json")
	f := NewFile(path)
	for _, tc := range []struct{ content, want, wrong string }{
		{"", "", ""}, // no file
		{`{"auths": {"r.example": {"username": "u", "password": "p"}, "r.example/a": {"username": "v", "password": "q"}, "other": {"username": "x"}}}`, "v:q u:p", ""},
		{`{"auths": {"r.example": {"username": "new", "password": "p"}}}`, "new:p", ""},
		{`{"auths": {"r.example": {"username": "sec`, "", "parse image credentials: " + path + ": not valid JSON"},
		{`{}`, "", ""},
	} {
		if tc.content != "" {
			if err := os.WriteFile(path, []byte(tc.content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 { // as read, and as remembered
			got, err := f.Credentials(t.Context(), "r.example/a/b:1")
			said := ""
			if err != nil {
				said = err.Error()
			}
			if pairs(got) != tc.want || said != tc.wrong {
				t.Errorf("%s: %q, %q; want %q, %q", tc.content, pairs(got), said, tc.want, tc.wrong)
			}
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if got, err := f.Credentials(t.Context(), "r.example/a"); len(got) > 0 || err != nil {
		t.Errorf("removed: %v, %v", got, err)
	}
}

// program writes a plugin.
func program(t *testing.T, dir, name, script string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script), 0o700); err != nil { //nolint:gosec // it is run
		t.Fatal(err)
	}
}

// A plugin is asked on standard input and answers on standard output. It has this process's
// environment.
func TestPluginProgram(t *testing.T) {
	t.Setenv("REGION", "eu")
	dir := t.TempDir()
	program(t, dir, "good", `read request
case "$request" in *'"kind":"CredentialProviderRequest"'*) ;; *) echo "odd request $request" >&2; exit 1;; esac
case "$request" in *'"image":"r.example/app:1"'*) ;; *) echo "odd image $request" >&2; exit 1;; esac
echo '{"apiVersion":"credentialprovider.kubelet.k8s.io/v1","kind":"CredentialProviderResponse","cacheKeyType":"Image",
"auth":{"*.example":{"username":"'$1'","password":"'$SECRET-$REGION'"},"other.example":{"username":"x"}}}'`)
	program(t, dir, "bad", `echo no such account >&2; exit 3`)
	program(t, dir, "odd", `echo '{"apiVersion":"v1","kind":"Pod"}'`)
	p, err := NewPlugins(PluginsConfig{Dir: dir, Plugins: []Plugin{
		{Name: "bad", Match: []string{"*.example"}},
		{Name: "good", Match: []string{"r.example"}, Args: []string{"me"}, Env: []string{"SECRET=pass"}},
		{Name: "odd", Match: []string{"r.example/app"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	got, err := p.Credentials(t.Context(), "r.example/app:1")
	if pairs(got) != "me:pass-eu" {
		t.Errorf("credentials %q, want those of the one that works", pairs(got))
	}
	for _, want := range []string{"get credentials from provider bad: exit status 3: no such account", `get credentials from provider odd: answers with "Pod" of "v1"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q in it", err, want)
		}
	}
	if got, err := p.Credentials(t.Context(), "elsewhere/app:1"); len(got) > 0 || err != nil {
		t.Errorf("an image that nobody knows: %v, %v", got, err)
	}
}

func response(key, lasts, user string) string {
	return fmt.Sprintf(`{"apiVersion":"credentialprovider.kubelet.k8s.io/v1","kind":"CredentialProviderResponse","cacheKeyType":%q%s,"auth":{"r.example":{"username":%q}}}`,
		key, lasts, user)
}

// Answers are remembered for as long, and for as much, as the plugin says.
func TestPluginAnswersAreRemembered(t *testing.T) {
	for _, tc := range []struct {
		name, key, lasts string
		def              time.Duration
		asks             int // for an image, again, its neighbour, another registry, and the first again after 5 and 15 minutes
	}{
		{"by image", "Image", `,"cacheDuration":"10m"`, 0, 4},
		{"by registry", "Registry", `,"cacheDuration":"10m"`, 0, 3},
		{"for all", "Global", `,"cacheDuration":"10m"`, 0, 2},
		{"by default", "Image", "", 10 * time.Minute, 4},
		{"the answer before the default", "Image", `,"cacheDuration":"10m"`, time.Hour, 4},
		{"not at all", "Image", "", 0, 6},
		{"not at all, says the answer", "Image", `,"cacheDuration":"0s"`, time.Hour, 6},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				asks := 0
				p := &Plugins{
					cfg:   PluginsConfig{Plugins: []Plugin{{Name: "p", Match: []string{"r.example", "s.example"}, CacheDuration: tc.def}}},
					cache: map[string]answer{},
					run: func(context.Context, *Plugin, []byte) ([]byte, error) {
						asks++
						return []byte(response(tc.key, tc.lasts, "u")), nil
					},
				}
				for _, step := range []struct {
					image string
					after time.Duration
				}{{"r.example/a", 0}, {"r.example/a", 0}, {"r.example/b", 0}, {"s.example/a", 0}, {"r.example/a", 5 * time.Minute}, {"r.example/a", 10 * time.Minute}} {
					time.Sleep(step.after)
					got, err := p.Credentials(t.Context(), step.image)
					want := "u:"
					if strings.HasPrefix(step.image, "s.") {
						want = "" // the answer is not for that
					}
					if err != nil || pairs(got) != want {
						t.Errorf("%s: %q, %v; want %q", step.image, pairs(got), err, want)
					}
				}
				if asks != tc.asks {
					t.Errorf("asked %d times, want %d", asks, tc.asks)
				}
			})
		})
	}
}

// Concurrent requests for one image call the plugin once; a failure is not reused later.
func TestPluginIsAskedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asks, fail := 0, true
		p := &Plugins{
			cfg:   PluginsConfig{Plugins: []Plugin{{Name: "p", Match: []string{"r.example"}, CacheDuration: time.Hour}}},
			cache: map[string]answer{},
			run: func(context.Context, *Plugin, []byte) ([]byte, error) {
				asks++
				time.Sleep(time.Second)
				if fail {
					return nil, errors.New("down")
				}
				return []byte(response("Image", "", "u")), nil
			},
		}
		all := func() (ok int) {
			var wg sync.WaitGroup
			var mu sync.Mutex
			for range 10 {
				wg.Go(func() {
					if got, err := p.Credentials(t.Context(), "r.example/a"); err == nil && pairs(got) == "u:" {
						mu.Lock()
						defer mu.Unlock()
						ok++
					}
				})
			}
			wg.Wait()
			return ok
		}
		if ok := all(); ok != 0 || asks != 1 {
			t.Errorf("%d got credentials, %d asked; want none, once", ok, asks)
		}
		fail = false
		if ok := all(); ok != 10 || asks != 2 {
			t.Errorf("%d got credentials, %d asked; want 10, once more", ok, asks)
		}
		impatient, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		clear(p.cache)
		if _, err := p.Credentials(impatient, "r.example/a"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("who gives up gets %v", err)
		}
		synctest.Wait()
		time.Sleep(time.Second) // the question was asked nevertheless
		if _, err := p.Credentials(t.Context(), "r.example/a"); err != nil || asks != 3 {
			t.Errorf("%v, asked %d times; want 3", err, asks)
		}
	})
}

func TestPluginsConfig(t *testing.T) {
	dir := t.TempDir()
	program(t, dir, "p", "")
	if err := os.WriteFile(filepath.Join(dir, "text"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		plugins []Plugin
		want    string
	}{
		{[]Plugin{{Name: "p", Match: []string{"*.example:5000/x"}}}, ""},
		{[]Plugin{{Name: "", Match: []string{"x"}}}, `Plugins[0].Name "": want the name of a file`},
		{[]Plugin{{Name: "../p", Match: []string{"x"}}}, `Plugins[0].Name "../p": want the name of a file`},
		{[]Plugin{{Name: "text", Match: []string{"x"}}}, `Plugins[0].Name "text": not a program`},
		{[]Plugin{{Name: "none", Match: []string{"x"}}}, `Plugins[0].Name "none": stat`},
		{[]Plugin{{Name: "p", Match: []string{"x"}}, {Name: "p", Match: []string{"x"}}}, `Plugins[1].Name "p" stands there twice`},
		{[]Plugin{{Name: "p"}}, "Plugins[0].Match is empty"},
		{[]Plugin{{Name: "p", Match: []string{"https://x"}}}, `Plugins[0].Match "https://x": want host`},
		{[]Plugin{{Name: "p", Match: []string{"x"}, CacheDuration: -1}}, "Plugins[0].CacheDuration -1ns: want 0 or more"},
	} {
		_, err := NewPlugins(PluginsConfig{Dir: dir, Plugins: tc.plugins})
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: error %v, want %q", tc.plugins, err, tc.want)
		}
	}
}

// Something other than a configuration file is an error, and blocks nobody.
func TestAFileThatIsNoConfiguration(t *testing.T) {
	for name, do := range map[string]func(path string) error{
		"a terabyte":  func(p string) error { return errors.Join(os.WriteFile(p, nil, 0o600), os.Truncate(p, 1<<40)) },
		"a pipe":      func(p string) error { return syscall.Mkfifo(p, 0o600) },
		"a directory": func(p string) error { return os.Mkdir(p, 0o700) },
	} {
		path := filepath.Join(t.TempDir(), "config.json")
		if err := do(path); err != nil {
			t.Fatal(err)
		}
		f := NewFile(path)
		for range 2 {
			if got, err := f.Credentials(t.Context(), "r.example/a"); err == nil {
				t.Errorf("%s: %v", name, got)
			}
		}
		if err := errors.Join(os.Remove(path), os.WriteFile(path+"-real", []byte(`{"auths": {"r.example": {"username": "u", "password": "p"}}}`), 0o600),
			os.Symlink(path+"-real", path)); err != nil {
			t.Fatal(err)
		}
		if got, err := f.Credentials(t.Context(), "r.example/a"); err != nil || pairs(got) != "u:p" {
			t.Errorf("a link of the node's owner: %q, %v", pairs(got), err)
		}
	}
}

// The file's disk does not answer.
func TestAFileThatDoesNotCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := NewFile(filepath.Join(t.TempDir(), "config.json"))
		hang := make(chan struct{})
		go func() {
			_, _ = f.read.Do(t.Context(), "", func() (credentialFile, error) { <-hang; return f.load() })
		}()
		synctest.Wait()
		began := time.Now()
		for range 3 {
			if _, err := f.Credentials(t.Context(), "r.example/a"); err == nil || !strings.Contains(err.Error(), "did not answer") {
				t.Errorf("%v", err)
			}
		}
		if took := time.Since(began); took != 3*configTimeout || f.read.InFlight() != 1 {
			t.Errorf("%v with %d calls in flight", took, f.read.InFlight())
		}
		close(hang)
		if _, err := f.Credentials(t.Context(), "r.example/a"); err != nil {
			t.Error(err)
		}
	})
}
