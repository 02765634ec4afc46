package podsync_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/checkpoint/checkpointtest"
	"github.com/nodewright/nodewright/kubeapi/kubeapitest"
	"github.com/nodewright/nodewright/kubeapi/podsync"
	"github.com/nodewright/nodewright/kubeapi/seal"
	"github.com/nodewright/nodewright/volumemgr/plugins"
)

// has reports whether a value has a text.
func has(d *checkpointtest.Disk, text string) bool {
	for _, v := range d.Values() {
		if strings.Contains(v, text) {
			return true
		}
	}
	return false
}

// issuer issues tokens of an hour, or what the test has it do.
type issuer struct {
	asked int
	err   error
	hang  bool
}

func (i *issuer) Request(ctx context.Context, ns, account string, spec authenticationv1.TokenRequestSpec) (plugins.IssuedToken, error) {
	i.asked++
	if i.hang {
		<-ctx.Done()
		return plugins.IssuedToken{}, ctx.Err()
	}
	if i.err != nil {
		return plugins.IssuedToken{}, i.err
	}
	hour := int64(3600)
	return plugins.IssuedToken{
		Value: fmt.Sprintf("%s/%s/%s#%d", ns, account, spec.BoundObjectRef.UID, i.asked), Expires: time.Now().Add(time.Hour), Seconds: &hour,
	}, nil
}

// keeper keeps tokens with the key of a file; "" is none, and nil one that cannot
// be used.
func keeper(t *testing.T, i *issuer, d *checkpointtest.Disk, keyFile string) *podsync.TokenKeeper {
	t.Helper()
	s := seal.Clear()
	if keyFile != "" {
		s, _ = seal.Open(keyFile)
	}
	k, err := podsync.NewTokenKeeper(podsync.TokenKeeperConfig{Requester: i, Memory: d, Seal: s})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func of(uid types.UID) authenticationv1.TokenRequestSpec {
	hour := int64(3600)
	return authenticationv1.TokenRequestSpec{
		ExpirationSeconds: &hour, BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: "p", UID: uid},
	}
}

// says is a token, or why there is none.
func says(t *testing.T, k *podsync.TokenKeeper, uid types.UID) string {
	t.Helper()
	tok, err := k.Token(t.Context(), "ns", "sa", of(uid))
	if err != nil {
		return "error: " + err.Error()
	}
	return tok.Value
}

var errAway = errors.New("connection refused")

// What a new agent gives a pod, by how old its token is and what the server does.
func TestAfterARestart(t *testing.T) {
	for _, tc := range []struct {
		name  string
		age   time.Duration
		err   error // of the issuer
		hang  bool
		want  string
		asked int           // in the second life
		took  time.Duration // virtual
		again time.Duration // until it is to be asked for again
	}{
		{name: "new: it is not asked for again", age: 10 * time.Minute, want: "ns/sa/u#1", again: 38 * time.Minute},
		{name: "new, and no server", age: 10 * time.Minute, err: errAway, want: "ns/sa/u#1", again: 38 * time.Minute},
		{name: "due: renewed", age: 50 * time.Minute, want: "ns/sa/u#2", asked: 1, again: 48 * time.Minute},
		{name: "due, and no server", age: 50 * time.Minute, err: errAway, want: "ns/sa/u#1", asked: 1, again: time.Minute},
		{name: "due, and a server that hangs", age: 50 * time.Minute, hang: true, want: "ns/sa/u#1", asked: 1, took: 5 * time.Second, again: time.Minute},
		{name: "due, and refused", age: 50 * time.Minute, err: kubeapitest.Status(403), want: "ns/sa/u#1", asked: 1, again: time.Minute},
		{name: "expired: renewed", age: 2 * time.Hour, want: "ns/sa/u#2", asked: 1, again: 48 * time.Minute},
		{name: "expired, and no server", age: 100 * time.Hour, err: errAway, want: "ns/sa/u#1", asked: 1, again: time.Minute},
		{name: "expired, and a server that hangs", age: 2 * time.Hour, hang: true, want: "ns/sa/u#1", asked: 1, took: 5 * time.Second, again: time.Minute},
		{name: "expired, and a server in trouble", age: 2 * time.Hour, err: kubeapitest.Status(503), want: "ns/sa/u#1", asked: 1, again: time.Minute},
		{name: "expired, and a busy server", age: 2 * time.Hour, err: kubeapitest.TooMany(time.Second), want: "ns/sa/u#1", asked: 1, again: time.Minute},
		{name: "expired, and the node is not known", age: 2 * time.Hour, err: kubeapitest.Status(401), want: "ns/sa/u#1", asked: 1, again: time.Minute},
		{name: "expired, and refused", age: 2 * time.Hour, err: kubeapitest.Status(403), want: "", asked: 1},
		{name: "expired, and the account is gone", age: 2 * time.Hour, err: kubeapitest.Status(404), want: "", asked: 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				i, d := &issuer{}, &checkpointtest.Disk{}
				if got := says(t, keeper(t, i, d, ""), "u"); got != "ns/sa/u#1" {
					t.Fatalf("at first %q", got)
				}
				time.Sleep(tc.age)
				i.err, i.hang = tc.err, tc.hang
				k, begun := keeper(t, i, d, ""), time.Now()
				got, err := k.Token(t.Context(), "ns", "sa", of("u"))
				if got.Value != tc.want || (err != nil) != (tc.want == "") {
					t.Errorf("got %q (%v), want %q", got.Value, err, tc.want)
				}
				if n := i.asked - 1; n != tc.asked {
					t.Errorf("asked %d times, want %d", n, tc.asked)
				}
				if took := time.Since(begun); took != tc.took {
					t.Errorf("it took %v, want %v", took, tc.took)
				}
				if got.Refresh != tc.again {
					t.Errorf("to be asked for again after %v, want %v", got.Refresh, tc.again)
				}
				i.err, i.hang = nil, false
				time.Sleep(got.Refresh)
				if next := says(t, k, "u"); tc.again == time.Minute && next == tc.want {
					t.Errorf("a minute after the server's return it is still %q", next)
				}
			})
		})
	}
}

// A disk that hangs at the start keeps no question beyond its context, and what it had is read when it
// is well.
func TestAfterARestartOnAHungDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i, d := &issuer{}, &checkpointtest.Disk{}
		says(t, keeper(t, i, d, ""), "u")
		i.err = errAway
		d.Fault(func(call, _ string) error {
			if call == "keys" {
				time.Sleep(20 * time.Second)
			}
			return errors.New("input/output error")
		})
		k, err := podsync.NewTokenKeeper(podsync.TokenKeeperConfig{Requester: i, Memory: d, Seal: seal.Clear()})
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		all.Go(func() { _, _ = k.Token(t.Context(), "ns", "sa", of("u")) })
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begun := time.Now()
		if _, err := k.Token(ctx, "ns", "sa", of("u")); err == nil || time.Since(begun) != time.Second {
			t.Errorf("answered after %v: %v", time.Since(begun), err)
		}
		all.Wait()
		d.Fault(nil)
		if got := says(t, k, "u"); !strings.HasPrefix(got, "error: ") {
			t.Errorf("read again at once: %q", got)
		}
		time.Sleep(time.Minute)
		if got := says(t, k, "u"); got != "ns/sa/u#1" {
			t.Errorf("a minute later %q", got)
		}
	})
}

// A token that was never issued is nowhere, and one of another request is not it.
func TestNothingIsKept(t *testing.T) {
	i, d := &issuer{}, &checkpointtest.Disk{}
	_ = says(t, keeper(t, i, d, ""), "u")
	i.err = errAway
	k := keeper(t, i, d, "")
	audience := of("u")
	audience.Audiences = []string{"vault"}
	for name, ask := range map[string]func() (plugins.Token, error){
		"another pod":       func() (plugins.Token, error) { return k.Token(t.Context(), "ns", "sa", of("v")) },
		"another account":   func() (plugins.Token, error) { return k.Token(t.Context(), "ns", "sb", of("u")) },
		"another namespace": func() (plugins.Token, error) { return k.Token(t.Context(), "nt", "sa", of("u")) },
		"another audience":  func() (plugins.Token, error) { return k.Token(t.Context(), "ns", "sa", audience) },
	} {
		if got, err := ask(); !errors.Is(err, errAway) {
			t.Errorf("%s: %q (%v)", name, got.Value, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	i.err = context.Canceled
	if _, err := k.Token(ctx, "ns", "sa", of("v")); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller who has gone: %v", err)
	}
}

// No token is deleted before its successor is stored, and none because it has
// expired.
func TestSuccession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i, d := &issuer{}, &checkpointtest.Disk{}
		k := keeper(t, i, d, "")
		full := false
		d.Fault(func(call, key string) error {
			if call == "write" && i.asked > 1 && d.Value(key) == "" {
				t.Error("the old token is gone while the new one is written")
			}
			if full {
				return errors.New("no space left")
			}
			return nil
		})
		for range 50 {
			_ = says(t, k, "u")
			time.Sleep(time.Hour)
			if len(d.Values()) != 1 {
				t.Fatalf("%d tokens are kept, want 1", len(d.Values()))
			}
		}
		full = true
		last := says(t, k, "u")
		if last != "ns/sa/u#51" {
			t.Errorf("with a full disk %q", last)
		}
		if !has(d, "ns/sa/u#50") {
			t.Error("the last one that was stored is gone")
		}
		full = false
		time.Sleep(time.Hour)
		if _ = says(t, k, "u"); !has(d, "ns/sa/u#52") {
			t.Error("the next one is not stored")
		}
	})
}

func TestPodsThatAreGone(t *testing.T) {
	i, d := &issuer{}, &checkpointtest.Disk{}
	k := keeper(t, i, d, "")
	for _, uid := range []types.UID{"u-1", "u-2", "u-3"} {
		_ = says(t, k, uid)
	}
	k.Forget("u-1")
	if has(d, "u-1") || !has(d, "u-2") || !has(d, "u-3") {
		t.Errorf("kept %v", slices.Sorted(maps.Keys(d.Values())))
	}
	if got := says(t, k, "u-1"); got != "ns/sa/u-1#4" {
		t.Errorf("what was forgotten is %q", got)
	}
	// One went while there was no agent, and cannot even be read.
	for key := range d.Values() {
		if strings.Contains(key, "u-2") {
			d.Put(key, "{")
		}
	}
	d.Put("another's", "x")
	k = keeper(t, i, d, "")
	k.Retain(func(uid types.UID) bool { return uid == "u-3" })
	if len(d.Values()) != 2 || !has(d, "u-3") || !has(d, "x") {
		t.Errorf("kept %v", slices.Sorted(maps.Keys(d.Values())))
	}
}

func TestTokensAreEncrypted(t *testing.T) {
	dir := t.TempDir()
	key, other := filepath.Join(dir, "key"), filepath.Join(dir, "other")
	if err := errors.Join(os.WriteFile(key, []byte(strings.Repeat("k", 32)), 0o600), os.WriteFile(other, []byte(strings.Repeat("o", 32)), 0o600)); err != nil {
		t.Fatal(err)
	}
	i, d := &issuer{}, &checkpointtest.Disk{}
	_ = says(t, keeper(t, i, d, ""), "u")
	if !has(d, "ns/sa/u#1") {
		t.Error("without a key it is not kept as it is")
	}
	away := &issuer{err: errAway}
	for _, tc := range []struct{ name, file, want string }{
		{"from now on", key, "ns/sa/u#1"},
		{"encrypted", key, "ns/sa/u#1"},
		{"without the key", "", "error"},
		{"with another key", other, "error"},
		{"with a key that is not there", filepath.Join(dir, "none"), "error"},
		{"with the key again", key, "ns/sa/u#1"},
	} {
		if got := says(t, keeper(t, away, d, tc.file), "u"); !strings.HasPrefix(got, tc.want) {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
		if has(d, "ns/sa/u") {
			t.Errorf("%s: it is not encrypted", tc.name)
		}
	}
	if got := says(t, keeper(t, i, d, filepath.Join(dir, "none")), "v"); got != "ns/sa/v#2" || len(d.Values()) != 1 {
		t.Errorf("with a key that is not there: %q, %d kept", got, len(d.Values()))
	}
}

// Without a key no token is kept. One that was kept in the clear is good for this
// life, and no longer on the disk.
func TestNoTokenIsKeptWithoutAKey(t *testing.T) {
	i, d := &issuer{}, &checkpointtest.Disk{}
	none := filepath.Join(t.TempDir(), "none")
	for _, tc := range []struct {
		uid  types.UID
		file string
		want string
		kept int
	}{{"u", none, "ns/sa/u#1", 0}, {"u", "", "ns/sa/u#2", 1}, {"u", none, "ns/sa/u#2", 0}, {"u", none, "ns/sa/u#3", 0}} {
		if got := says(t, keeper(t, i, d, tc.file), tc.uid); got != tc.want || len(d.Values()) != tc.kept {
			t.Errorf("got %q, %d kept; want %+v", got, len(d.Values()), tc)
		}
	}
}

// A key that is lost costs one line in the log, however many tokens there were.
func TestRefsALostKeyIsToldOnce(t *testing.T) {
	dir := t.TempDir()
	start := func(i *issuer, d *checkpointtest.Disk, log *zap.Logger) *podsync.TokenKeeper {
		s, err := seal.Machine(filepath.Join(dir, "key"), nil)
		if err != nil {
			t.Fatal(err)
		}
		k, err := podsync.NewTokenKeeper(podsync.TokenKeeperConfig{Requester: i, Memory: d, Seal: s, Log: log})
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	i, d := &issuer{}, &checkpointtest.Disk{}
	k := start(i, d, nil)
	for _, uid := range []types.UID{"u", "v", "w"} {
		_ = says(t, k, uid)
	}
	if err := os.Remove(filepath.Join(dir, "key")); err != nil {
		t.Fatal(err)
	}
	core, logs := observer.New(zapcore.WarnLevel)
	k = start(i, d, zap.New(core))
	for _, uid := range []types.UID{"u", "v", "w"} {
		_ = says(t, k, uid)
	}
	if n := logs.Len(); n != 1 || logs.All()[0].Level != zapcore.WarnLevel {
		t.Errorf("%d lines: %+v", n, logs.All())
	}
	if k = start(&issuer{err: errAway}, d, nil); says(t, k, "v") != "ns/sa/v#5" {
		t.Error("they are not kept with the new key")
	}
}

func TestKeeperConfig(t *testing.T) {
	_, err := podsync.NewTokenKeeper(podsync.TokenKeeperConfig{})
	for _, want := range []string{"Requester", "Memory"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s in it", err, want)
		}
	}
	d := &checkpointtest.Disk{}
	d.Fault(checkpointtest.Fail(errors.New("broken")))
	if got := says(t, keeper(t, &issuer{}, d, ""), "u"); got != "ns/sa/u#1" {
		t.Errorf("with a broken disk %q", got)
	}
}

// Many ask at once, and pods go meanwhile.
func TestKeeperIsSafe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &checkpointtest.Disk{}
		k := keeper(t, &issuer{}, d, "")
		_ = says(t, k, "u") // the issuer is no part of the race
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 20 {
					_ = says(t, k, "u")
					k.Retain(func(types.UID) bool { return true })
					k.Forget("none")
				}
			})
		}
		wg.Wait()
	})
}
