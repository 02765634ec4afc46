package podsync

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/kubeapi/seal"
	"github.com/nodewright/nodewright/volumemgr/plugins"
)

// TokenMemory stores values over a restart, readable only by their owner: a
// [github.com/nodewright/nodewright/checkpoint.Store].
type TokenMemory interface {
	Keys() ([]string, error)
	// Read returns fs.ErrNotExist for a missing value.
	Read(key string) ([]byte, error)
	Write(key string, value []byte) error
	Delete(key string) error
}

// TokenKeeperConfig configures a [TokenKeeper]. Requester and Memory are required;
// the zero value of every other field means the default named beside it.
type TokenKeeperConfig struct {
	Requester plugins.TokenRequester // issues tokens: a TokenRequester
	Memory    TokenMemory
	// Seal encrypts the stored tokens. If it is nil, tokens are not stored. With seal.Clear they
	// are stored unencrypted.
	Seal *seal.Sealer
	Log  *zap.Logger // if nil, nothing is logged
}

const (
	// tokenTimeout is how long to wait for the issuer of a new token while the old one is still
	// valid.
	tokenTimeout = 5 * time.Second
	// again is the pause before the issuer is called again, if a token could not be renewed. It is
	// also the pause before the store is read again, if it could not be listed.
	again = time.Minute
)

// TokenKeeper is a cache of tokens that survives a restart: it implements
// plugins.Tokens for a node that has to start its pods without a network.
//
// Tokens are renewed by the rules of [plugins.TokenCache]. A token that cannot be
// renewed is used while it is valid. If the issuer does not answer, the token is used
// even after it has expired: a pod that mounts it can start, and gets a new token
// within a minute after the issuer is back.
//
// A token is replaced when its successor is stored, and deleted when its pod is gone.
// It is never deleted because it has expired.
type TokenKeeper struct {
	cfg   TokenKeeperConfig
	cache *plugins.TokenCache
	log   *zap.Logger

	// loading is a semaphore with one slot that guards loaded and tried. It is not a mutex: a
	// caller has to return when its ctx ends, even while the disk hangs.
	loading chan struct{}
	loaded  bool
	tried   time.Time

	mu   sync.Mutex
	have map[string]*kept // by key of the Memory; nil: not read yet
	told map[string]bool  // keys of old tokens that were logged
}

var _ plugins.Tokens = (*TokenKeeper)(nil)

// kept is a token as it is stored.
type kept struct {
	Namespace string    `json:"namespace"`
	Account   string    `json:"serviceAccount"`
	Value     string    `json:"token"`
	Expires   time.Time `json:"expires"`
	Seconds   *int64    `json:"seconds,omitempty"`

	fresh bool // issued by this process, or in the cache
}

func (k *kept) issued() plugins.IssuedToken {
	return plugins.IssuedToken{Value: k.Value, Expires: k.Expires, Seconds: k.Seconds}
}

// NewTokenKeeper checks cfg and returns a TokenKeeper. It reads nothing before the
// first call.
func NewTokenKeeper(cfg TokenKeeperConfig) (*TokenKeeper, error) {
	var errs []error
	if cfg.Requester == nil {
		errs = append(errs, errors.New("KeeperConfig.Requester is required"))
	}
	if cfg.Memory == nil {
		errs = append(errs, errors.New("KeeperConfig.Memory is required"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("podsync: %w", err)
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	k := &TokenKeeper{cfg: cfg, log: cfg.Log, loading: make(chan struct{}, 1), have: map[string]*kept{}, told: map[string]bool{}}
	var err error
	if k.cache, err = plugins.NewTokenCache(plugins.TokenCacheConfig{Requester: asking{k}, Log: cfg.Log}); err != nil {
		return nil, fmt.Errorf("podsync: %w", err)
	}
	return k, nil
}

// Token returns a token for the account. Call it again after its Refresh.
func (k *TokenKeeper) Token(ctx context.Context, namespace, account string, spec authenticationv1.TokenRequestSpec) (plugins.Token, error) {
	k.load(ctx)
	id := tokenKeyOf(namespace, account, spec)
	t, err := k.cache.Token(ctx, namespace, account, spec)
	k.mu.Lock()
	defer k.mu.Unlock()
	is := k.have[id]
	switch {
	case err == nil:
		delete(k.told, id)
		return t, nil
	case is == nil, ctx.Err() != nil, !time.Now().Before(is.Expires) && refused(err):
		return plugins.Token{}, err
	}
	if !k.told[id] {
		k.told[id] = true
		k.log.Warn("failed to renew token; using the old one", zap.String("namespace", namespace), zap.String("serviceAccount", account),
			zap.Time("expires", is.Expires), zap.Error(err))
	}
	return plugins.Token{Value: is.Value, Refresh: again, Expires: is.Expires}, nil
}

// refused reports whether the server refused this request. It is false if the server
// had an error of its own, or does not know the node yet.
func refused(err error) bool {
	var s apierrors.APIStatus
	if !errors.As(err, &s) {
		return false
	}
	switch code := s.Status().Code; code {
	case http.StatusUnauthorized, http.StatusRequestTimeout, http.StatusTooManyRequests:
		return false
	default:
		return code >= 400 && code < 500
	}
}

// asking is the plugins.TokenRequester of the cache. It returns stored tokens, and stores new
// ones.
type asking struct{ *TokenKeeper }

// Request returns the token that an earlier process stored, if it need not be renewed yet. It
// does so once for each token. Otherwise it requests a new token and stores it.
func (k asking) Request(ctx context.Context, namespace, account string, spec authenticationv1.TokenRequestSpec) (plugins.IssuedToken, error) {
	id := tokenKeyOf(namespace, account, spec)
	k.mu.Lock()
	is := k.have[id]
	if is != nil && !is.fresh && time.Now().Before(is.Expires) && !plugins.TokenRequiresRefresh(is.issued(), time.Now(), 0) {
		is.fresh = true
		k.mu.Unlock()
		return is.issued(), nil
	}
	k.mu.Unlock()
	if is != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, tokenTimeout)
		defer cancel()
	}
	issued, err := k.cfg.Requester.Request(ctx, namespace, account, spec)
	if err != nil {
		return plugins.IssuedToken{}, err
	}
	next := &kept{Namespace: namespace, Account: account, Value: issued.Value, Expires: issued.Expires, Seconds: issued.Seconds, fresh: true}
	if err := k.write(id, next); err != nil {
		k.log.Error("failed to store token for a start without a network", zap.String("namespace", namespace), zap.String("serviceAccount", account), zap.Error(err))
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.have[id] = next
	return issued, nil
}

// Forget drops the tokens that are bound to a pod.
func (k *TokenKeeper) Forget(uid types.UID) {
	k.cache.Forget(uid)
	k.Retain(func(of types.UID) bool { return of != uid })
}

// Retain deletes the tokens of pods for which known returns false, such as pods
// removed while the agent was down.
func (k *TokenKeeper) Retain(known func(types.UID) bool) {
	k.load(context.Background())
	k.mu.Lock()
	var gone []string
	for id := range k.have {
		if uid := podOf(id); uid != "" && !known(uid) {
			delete(k.have, id)
			delete(k.told, id)
			gone = append(gone, id)
		}
	}
	k.mu.Unlock()
	for _, id := range gone {
		if err := k.cfg.Memory.Delete(id); err != nil && !errors.Is(err, fs.ErrNotExist) {
			k.log.Error("failed to remove unused token", zap.String("key", id), zap.Error(err))
		}
	}
}

// prefix begins the keys of tokens.
const prefix = "token-"

// tokenKeyOf returns the key of a request. Requests for the same token have the same key.
func tokenKeyOf(namespace, account string, spec authenticationv1.TokenRequestSpec) string {
	if s := spec.ExpirationSeconds; s != nil && *s == 0 {
		spec.ExpirationSeconds = nil
	}
	b, err := json.Marshal([]any{namespace, account, spec})
	if err != nil { // it is strings and numbers
		panic(err)
	}
	uid := types.UID("")
	if r := spec.BoundObjectRef; r != nil {
		uid = r.UID
	}
	h := sha256.Sum256(b)
	return prefix + string(uid) + "-" + hex.EncodeToString(h[:16])
}

// podOf returns the UID of the pod to which the token of a key is bound, or "" if there is none.
func podOf(id string) types.UID {
	id = strings.TrimPrefix(id, prefix)
	if i := strings.LastIndexByte(id, '-'); i > 0 {
		return types.UID(id[:i])
	}
	return ""
}

func (k *TokenKeeper) write(id string, t *kept) error {
	if k.cfg.Seal == nil {
		return nil
	}
	b, err := json.Marshal(t)
	if err == nil {
		b, err = k.cfg.Seal.Seal(id, b)
	}
	if err != nil {
		return err
	}
	return k.cfg.Memory.Write(id, b)
}

// load reads the tokens that earlier processes stored, unless an earlier call succeeded, or
// failed less than again ago. It returns when ctx ends.
func (k *TokenKeeper) load(ctx context.Context) {
	select {
	case k.loading <- struct{}{}:
	case <-ctx.Done():
		return
	}
	defer func() { <-k.loading }()
	if !k.loaded && (k.tried.IsZero() || time.Since(k.tried) >= again) {
		k.loaded = k.recall()
		k.tried = time.Now()
	}
}

// recall reads the tokens that earlier processes stored, and reports whether the
// store could be listed. A token that cannot be decrypted stays in the store until
// a new one replaces it: the agent may be started again with the right key.
func (k *TokenKeeper) recall() bool {
	keys, err := k.cfg.Memory.Keys()
	if err != nil {
		k.log.Error("failed to read stored tokens", zap.Error(err))
		return false
	}
	have := map[string]*kept{}
	locked, cause := 0, error(nil)
	for _, id := range keys {
		if !strings.HasPrefix(id, prefix) {
			continue
		}
		is, err := k.read(id)
		if errors.Is(err, seal.ErrNoKey) || errors.Is(err, seal.ErrWrongKey) {
			locked, cause = locked+1, err
		} else if err != nil {
			k.log.Error("failed to read stored token; requesting it again", zap.String("key", id), zap.Error(err))
		}
		have[id] = is
	}
	if locked > 0 {
		k.log.Warn("failed to decrypt stored tokens; requesting them again", zap.Int("tokens", locked), zap.Error(cause))
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	maps.Copy(have, k.have) // tokens issued meanwhile replace stored ones
	k.have = have
	return true
}

func (k *TokenKeeper) read(id string) (*kept, error) {
	b, err := k.cfg.Memory.Read(id)
	if err != nil {
		return nil, err
	}
	clear := !seal.Sealed(b)
	if b, err = k.cfg.Seal.Unseal(id, b); err != nil {
		return nil, err
	}
	is, err := parse(b)
	if err != nil || !clear {
		return is, err
	}
	switch {
	case k.cfg.Seal == nil: // the token is usable in this process
		err = k.cfg.Memory.Delete(id)
	case k.cfg.Seal.Encrypts(): // there is a key now
		err = k.write(id, is)
	}
	if err != nil {
		k.log.Error("failed to encrypt stored token", zap.String("key", id), zap.Error(err))
	}
	return is, nil
}

func parse(b []byte) (*kept, error) {
	is := &kept{}
	if err := json.Unmarshal(b, is); err != nil {
		return nil, err
	}
	if is.Value == "" {
		return nil, errors.New("token is empty")
	}
	return is, nil
}
