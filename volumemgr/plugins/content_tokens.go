package plugins

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	authv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/internal/seconds"
)

const (
	// maxAge is the age at which a token is renewed. maxJitter is the random part of it, in
	// seconds. Both are the kubelet's.
	maxAge    = 24 * time.Hour
	maxJitter = 10
	// sweepEvery is the interval at which expired tokens are removed (the kubelet's value).
	sweepEvery = time.Minute
	// never is the refresh interval of a token that never expires: the token is requested again
	// after this time.
	never = maxAge
)

// ErrNoTokenRequest is wrapped by a requester's error if the API server does not
// support token requests.
var ErrNoTokenRequest = errors.New("the API server does not issue tokens (TokenRequest)")

// TokenRequester requests tokens from an API server.
type TokenRequester interface {
	Request(ctx context.Context, namespace, serviceAccount string, spec authv1.TokenRequestSpec) (IssuedToken, error)
}

// IssuedToken is the API server's answer to a TokenRequest.
type IssuedToken struct {
	Value   string
	Expires time.Time
	// Seconds is the duration in the issuer's answer. It is nil if the answer has none. Such a
	// token is never renewed.
	Seconds *int64
}

// Token is a service account token that has not expired.
type Token struct {
	Value string
	// Refresh is the time after which a new token should be requested.
	Refresh time.Duration
	// Expires is the time at which the token becomes invalid.
	Expires time.Time
}

// TokenCacheConfig configures a [TokenCache]. If Requester is nil, every request for a token
// fails.
type TokenCacheConfig struct {
	// Requester requests tokens from the API server. It is nil if there is no API server.
	Requester TokenRequester
	Log       *zap.Logger // if nil, nothing is logged
}

// entry is one token, or the running request for it.
type entry struct {
	issued IssuedToken
	uid    types.UID // UID of the pod
	mu     sync.Mutex
}

// TokenCache stores service account tokens until they have to be renewed.
//
//	c, err := plugins.NewTokenCache(plugins.TokenCacheConfig{Requester: apiServer})
//	if err != nil {
//		return err
//	}
//	t, err := c.Token(ctx, pod.Namespace, pod.Spec.ServiceAccountName, spec)
//	...
//	// t.Value is valid now; call again after t.Refresh
//	c.Forget(pod.UID) // when the pod's volumes are gone
//
// A token is renewed in the last fifth of its validity or after a day, whichever comes first,
// with some seconds of jitter between pods ([TokenRequiresRefresh]). Equal requests share a
// token, or a running request. Requests are equal if account, audiences (in order), duration and
// bound object are equal.
//
// # Faults
//
// If a renewal fails, the old token is returned while it is valid. Expired tokens are removed by
// calls, at most once a minute. Expiry is a wall clock time, so the wall clock decides. A
// TokenCache is safe for concurrent use.
type TokenCache struct {
	cfg TokenCacheConfig

	mu      sync.Mutex
	entries map[string]*entry
	swept   time.Time
}

// NewTokenCache returns an empty TokenCache.
func NewTokenCache(cfg TokenCacheConfig) (*TokenCache, error) {
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	return &TokenCache{cfg: cfg, entries: make(map[string]*entry)}, nil
}

// Token returns a token for the account. It comes from the cache unless it has to be renewed.
func (c *TokenCache) Token(ctx context.Context, namespace, account string, spec authv1.TokenRequestSpec) (Token, error) {
	if c.cfg.Requester == nil {
		return Token{}, fmt.Errorf("token for service account %s/%s: no API server is configured", namespace, account)
	}
	e := c.entry(key(namespace, account, spec), spec)
	// Callers with equal requests wait here for one request.
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	jitter := time.Duration(rand.IntN(maxJitter)) * time.Second
	if e.issued.Value != "" && now.Before(e.issued.Expires) && !TokenRequiresRefresh(e.issued, now, jitter) {
		return Token{e.issued.Value, untilRefresh(e.issued, now), e.issued.Expires}, nil
	}
	issued, err := c.cfg.Requester.Request(ctx, namespace, account, spec)
	switch {
	case err == nil:
		if issued.Seconds == nil {
			c.cfg.Log.Info("token has no expiration time and is not renewed", zap.String("namespace", namespace), zap.String("serviceAccount", account))
		}
		e.issued = issued
		return Token{issued.Value, untilRefresh(issued, time.Now()), issued.Expires}, nil
	case e.issued.Value != "" && now.Before(e.issued.Expires):
		c.cfg.Log.Warn("failed to renew token; using the old one", zap.String("namespace", namespace), zap.String("serviceAccount", account), zap.Error(err))
		return Token{e.issued.Value, sweepEvery, e.issued.Expires}, nil
	}
	return Token{}, fmt.Errorf("token for service account %s/%s: %w", namespace, account, err)
}

// Forget removes the tokens bound to a pod.
func (c *TokenCache) Forget(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k, e := range c.entries {
		if e.uid == uid {
			delete(c.entries, k)
		}
	}
}

// entry returns the entry of a key, and creates it if there is none. It also removes expired
// entries.
func (c *TokenCache) entry(k string, spec authv1.TokenRequestSpec) *entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); now.Sub(c.swept) >= sweepEvery {
		c.swept = now
		for k, e := range c.entries {
			if !e.mu.TryLock() {
				continue // in use by a caller
			}
			if !now.Before(e.issued.Expires) {
				delete(c.entries, k)
			}
			e.mu.Unlock()
		}
	}
	e := c.entries[k]
	if e == nil {
		e = &entry{}
		if r := spec.BoundObjectRef; r != nil {
			e.uid = r.UID
		}
		c.entries[k] = e
	}
	return e
}

// key returns the cache key of a request. Requests with equal keys share a token.
func key(namespace, account string, spec authv1.TokenRequestSpec) string {
	parts := []string{account, namespace}
	seconds := int64(0)
	if spec.ExpirationSeconds != nil {
		seconds = *spec.ExpirationSeconds
	}
	parts = append(parts, strconv.FormatInt(seconds, 10))
	if r := spec.BoundObjectRef; r != nil {
		parts = append(parts, "ref", r.Kind, r.APIVersion, r.Name, string(r.UID))
	} else {
		parts = append(parts, "none")
	}
	parts = append(parts, spec.Audiences...)
	var b strings.Builder
	for _, p := range parts {
		b.WriteString(strconv.Quote(p))
	}
	return b.String()
}

// TokenRequiresRefresh reports whether a token has to be renewed: it is older than a day minus
// jitter, or in the last fifth of its validity plus jitter. A token whose duration is not known
// is never renewed. The function has no side effects.
func TokenRequiresRefresh(t IssuedToken, now time.Time, jitter time.Duration) bool {
	if t.Seconds == nil {
		return false
	}
	return !now.Before(refreshAt(t).Add(-jitter))
}

// refreshAt returns the latest time for renewing a token with a duration.
func refreshAt(t IssuedToken) time.Time {
	life := seconds.Of(*t.Seconds)
	issued := t.Expires.Add(-life)
	fifth, old := t.Expires.Add(-life/5), issued.Add(maxAge)
	if old.Before(fifth) {
		return old
	}
	return fifth
}

// untilRefresh returns the time until a token has to be renewed, at least a second.
func untilRefresh(t IssuedToken, now time.Time) time.Duration {
	if t.Seconds == nil {
		return max(min(never, t.Expires.Sub(now)), time.Second)
	}
	return max(refreshAt(t).Sub(now), time.Second)
}
