package images

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Any answer of a program is either rejected without revealing its secrets, or cached for the
// time that it gives, and no longer.
func FuzzPluginAnswer(f *testing.F) {
	const head = `{"apiVersion":"credentialprovider.kubelet.k8s.io/v1","kind":"CredentialProviderResponse",`
	f.Add([]byte(head + `"cacheKeyType":"Registry","cacheDuration":"10m","auth":{"example.com":{"username":"u","password":"p"}}}`))
	f.Add([]byte(head + `"cacheKeyType":"Global","cacheDuration":"-1s","auth":{"*.example.com":{},"":{"username":"x"}}}`))
	f.Add([]byte(head + `"cacheKeyType":"Image","cacheDuration":"2540400h"}`))
	f.Add([]byte(`{"kind":"secret"}{`))
	f.Fuzz(func(t *testing.T, out []byte) {
		runs := 0
		p := &Plugins{cfg: PluginsConfig{Plugins: []Plugin{{Name: "p", Match: []string{"example.com"}}}}, cache: map[string]answer{}}
		p.run = func(context.Context, *Plugin, []byte) ([]byte, error) { runs++; return out, nil }
		const image = "example.com/a/b:c"
		got, err := p.Credentials(t.Context(), image)
		if err != nil && (len(got) > 0 || len(err.Error()) > 1<<10) {
			t.Fatalf("%d credentials, and an error of %d bytes", len(got), len(err.Error()))
		}
		again, err2 := p.Credentials(t.Context(), image)
		if len(again) != len(got) || (err == nil) != (err2 == nil) {
			t.Fatalf("%d credentials, %v, and then %d, %v", len(got), err, len(again), err2)
		}
		for key, a := range p.cache {
			if left := time.Until(a.until); left > maxLasts {
				t.Fatalf("an answer is remembered for %v", left)
			}
			a.until = time.Now()
			p.cache[key] = a
		}
		before := runs
		if _, err3 := p.Credentials(t.Context(), image); (err3 == nil) != (err == nil) || runs != before+1 {
			t.Fatalf("%d runs when all is over, %v; want one more than %d", runs, err3, before)
		}
	})
}

// A program that writes without end is not kept whole, on either stream.
func TestTalkativePlugin(t *testing.T) {
	dir := t.TempDir()
	for name, script := range map[string]string{
		"answer":    "head -c 30000000 /dev/zero",
		"complaint": "head -c 30000000 /dev/zero | tr '\\0' x >&2; exit 1",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil { //nolint:gosec // it is a program
			t.Fatal(err)
		}
		p, err := NewPlugins(PluginsConfig{Dir: dir, Plugins: []Plugin{{Name: name, Match: []string{"example.com"}}}})
		if err != nil {
			t.Fatal(err)
		}
		_, err = p.Credentials(t.Context(), "example.com/a")
		want := map[string]string{"answer": "more than 1048576 bytes", "complaint": "exit status 1: xxx"}[name]
		if err == nil || !strings.Contains(err.Error(), want) || len(err.Error()) > 1<<10 {
			t.Errorf("%s: %.200s, want %q", name, fmt.Sprint(err), want)
		}
	}
	l := limited{limit: 10}
	if n, err := l.ReadFrom(strings.NewReader(strings.Repeat("x", 100))); n != 100 || err != nil || l.Len() != 10 {
		t.Errorf("%d, %v, %d kept; want 100 read and 10 kept: %v", n, err, l.Len(), errors.Unwrap(err))
	}
}
