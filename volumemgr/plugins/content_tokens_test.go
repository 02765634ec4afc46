package plugins

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	authv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestRequiresRefresh(t *testing.T) {
	issued := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	const hour, day = int64(3600), int64(24 * 3600)
	for _, tc := range []struct {
		name    string
		seconds int64 // 0: the issuer does not say
		age     time.Duration
		jitter  time.Duration
		want    bool
	}{
		{"an hour, new", hour, 0, 0, false},
		{"an hour, just before its last 12 minutes", hour, 48*time.Minute - time.Second, 0, false},
		{"an hour, in its last 12 minutes", hour, 48 * time.Minute, 0, true},
		{"an hour, with chance", hour, 48*time.Minute - 5*time.Second, 5 * time.Second, true},
		{"an hour, expired", hour, 2 * time.Hour, 0, true},
		{"a week, before a day", 7 * day, 24*time.Hour - time.Second, 0, false},
		{"a week, after a day", 7 * day, 24 * time.Hour, 0, true},
		{"a week, after a day, with chance", 7 * day, 24*time.Hour - 9*time.Second, 9 * time.Second, true},
		{"no life", 0, 1000 * time.Hour, 9 * time.Second, false},
	} {
		tok := IssuedToken{Value: "x", Expires: issued.Add(time.Duration(tc.seconds) * time.Second), Seconds: &tc.seconds}
		if tc.seconds == 0 {
			tok.Seconds = nil
		}
		if got := TokenRequiresRefresh(tok, issued.Add(tc.age), tc.jitter); got != tc.want {
			t.Errorf("%s: %t", tc.name, got)
		}
	}
}

type issuer struct {
	asked int
	err   error
	life  time.Duration
}

func (i *issuer) Request(_ context.Context, ns, sa string, spec authv1.TokenRequestSpec) (IssuedToken, error) {
	i.asked++
	if i.err != nil {
		return IssuedToken{}, i.err
	}
	s := int64(i.life / time.Second)
	return IssuedToken{Value: fmt.Sprint(ns, "/", sa, "#", i.asked), Expires: time.Now().Add(i.life), Seconds: &s}, nil
}

func cache(t *testing.T, r TokenRequester) *TokenCache {
	t.Helper()
	c, err := NewTokenCache(TokenCacheConfig{Requester: r})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// An hour's token is renewed in its last fifth; a failure gives the old one
// until it has expired.
func TestLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := &issuer{life: time.Hour}
		c := cache(t, i)
		get := func() (Token, error) { return c.Token(t.Context(), "ns", "sa", authv1.TokenRequestSpec{}) }
		first, err := get()
		if err != nil || first.Value != "ns/sa#1" || first.Refresh != 48*time.Minute {
			t.Fatalf("%+v (%v)", first, err)
		}
		time.Sleep(47 * time.Minute)
		if tok, err := get(); err != nil || tok.Value != first.Value || tok.Refresh != time.Minute {
			t.Errorf("%+v (%v)", tok, err)
		}
		time.Sleep(time.Minute)
		i.err = errors.New("down")
		if tok, err := get(); err != nil || tok.Value != first.Value || tok.Refresh <= 0 {
			t.Errorf("%+v (%v)", tok, err)
		}
		time.Sleep(12 * time.Minute)
		if _, err := get(); !errors.Is(err, i.err) || !strings.Contains(err.Error(), "ns/sa") {
			t.Errorf("expired: %v", err)
		}
		i.err = fmt.Errorf("not found: %w", ErrNoTokenRequest)
		if _, err := get(); !errors.Is(err, ErrNoTokenRequest) {
			t.Errorf("error %v", err)
		}
		i.err = nil
		if tok, err := get(); err != nil || tok.Value == first.Value {
			t.Errorf("%+v (%v)", tok, err)
		}
	})
}

func TestNoIssuer(t *testing.T) {
	if _, err := cache(t, nil).Token(t.Context(), "ns", "sa", authv1.TokenRequestSpec{}); err == nil {
		t.Error("no error")
	}
}

func TestKeys(t *testing.T) {
	hour, none := int64(3600), int64(0)
	ref := func(kind, name, uid string) authv1.TokenRequestSpec {
		return authv1.TokenRequestSpec{BoundObjectRef: &authv1.BoundObjectReference{Kind: kind, APIVersion: "v1", Name: name, UID: types.UID(uid)}}
	}
	keys := map[string]string{}
	for name, k := range map[string]string{
		"plain":              key("ns", "sa", authv1.TokenRequestSpec{}),
		"another account":    key("ns", "sa2", authv1.TokenRequestSpec{}),
		"another namespace":  key("ns2", "sa", authv1.TokenRequestSpec{}),
		"shifted names":      key("n", "ssa", authv1.TokenRequestSpec{}),
		"an hour":            key("ns", "sa", authv1.TokenRequestSpec{ExpirationSeconds: &hour}),
		"an audience":        key("ns", "sa", authv1.TokenRequestSpec{Audiences: []string{"a"}}),
		"an empty audience":  key("ns", "sa", authv1.TokenRequestSpec{Audiences: []string{""}}),
		"two audiences":      key("ns", "sa", authv1.TokenRequestSpec{Audiences: []string{"a", "b"}}),
		"in another order":   key("ns", "sa", authv1.TokenRequestSpec{Audiences: []string{"b", "a"}}),
		"one of both names":  key("ns", "sa", authv1.TokenRequestSpec{Audiences: []string{"ab"}}),
		"a pod":              key("ns", "sa", ref("Pod", "p", "1")),
		"the pod's next":     key("ns", "sa", ref("Pod", "p", "2")),
		"another pod":        key("ns", "sa", ref("Pod", "q", "1")),
		"a secret":           key("ns", "sa", ref("Secret", "p", "1")),
		"an empty reference": key("ns", "sa", authv1.TokenRequestSpec{BoundObjectRef: &authv1.BoundObjectReference{}}),
	} {
		if other, ok := keys[k]; ok {
			t.Errorf("%s and %s share a token", name, other)
		}
		keys[k] = name
	}
	if key("ns", "sa", authv1.TokenRequestSpec{ExpirationSeconds: &none}) != key("ns", "sa", authv1.TokenRequestSpec{}) {
		t.Error("no duration and 0 differ")
	}
}

func TestForgetAndSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := &issuer{life: time.Hour}
		c := cache(t, i)
		of := func(uid string) {
			spec := authv1.TokenRequestSpec{BoundObjectRef: &authv1.BoundObjectReference{UID: types.UID(uid)}}
			if _, err := c.Token(t.Context(), "ns", "sa", spec); err != nil {
				t.Fatal(err)
			}
		}
		of("a")
		of("b")
		of("a")
		if i.asked != 2 {
			t.Errorf("asked %d times, want 2", i.asked)
		}
		c.Forget("a")
		of("a")
		of("b")
		if i.asked != 3 {
			t.Errorf("asked %d times, want 3", i.asked)
		}
		time.Sleep(2 * time.Hour)
		of("c")
		if len(c.entries) != 1 {
			t.Errorf("%d entries are kept, want 1", len(c.entries))
		}
	})
}
