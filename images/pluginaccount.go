package images

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// PluginToken adds a token of the pod's service account to the requests to a Plugin (KEP-4412).
type PluginToken struct {
	Audience string
	// ByAccount caches answers for all pods of a service account. Otherwise an answer is valid
	// for one token only.
	ByAccount bool
	// Required skips the plugin for pods without a service account. Otherwise such pods are
	// served without a token.
	Required bool
	// RequiredAnnotations and OptionalAnnotations are keys of annotations of the service account.
	// Requests contain these annotations. A plugin is skipped if the account lacks a required
	// one.
	RequiredAnnotations, OptionalAnnotations []string
}

// Account has the data of a service account that Plugins needs.
type Account struct {
	UID         string
	Annotations map[string]string // read-only
}

// Accounts reads service accounts of the cluster. Its methods are called from any goroutine and
// must return when ctx ends.
type Accounts interface {
	// Account returns a service account. It is called often: for each plugin with a token, at
	// each request for an image.
	Account(ctx context.Context, namespace, name string) (Account, error)
	// Token returns a token of the pod's service account, bound to the pod.
	Token(ctx context.Context, pod *v1.Pod, audience string) (string, error)
}

// PodKeyring is a [Keyring] whose credentials depend on the pod. Its methods are called from any
// goroutine.
type PodKeyring interface {
	Keyring
	// PodCredentials returns the credentials of a pod for an image, the most specific first. pod
	// may be nil. It may return an error together with some credentials.
	PodCredentials(ctx context.Context, image string, pod *v1.Pod) ([]PodCredential, error)
	// PodAccounts returns the service accounts whose tokens PodCredentials would use. It
	// requests no credentials.
	PodAccounts(ctx context.Context, image string, pod *v1.Pod) []ServiceAccount
}

// PodCredential is a credential with the service account that it belongs to. The account is nil
// for a credential of the node.
type PodCredential struct {
	Auth    *runtimeapi.AuthConfig
	Account *ServiceAccount
}

// identity is the service account that a request to a plugin is made for. The zero value stands
// for the node.
type identity struct {
	account     *ServiceAccount
	annotations map[string]string
	// token is never stored or logged. Cache keys contain only its hash.
	token string

	remembered string // the part of cache keys that stands for the identity; "" for the node
	asked      string // equal for requests that can share a run of the plugin
}

// whose returns the identity for a plugin's request for a pod, without a token: a check of the
// records needs none. use is false if the plugin is not used for this pod.
func (p *Plugins) whose(ctx context.Context, plugin *Plugin, pod *v1.Pod) (who identity, use bool, err error) {
	t := plugin.Token
	switch {
	case t == nil:
		return identity{}, true, nil
	case pod == nil || pod.Spec.ServiceAccountName == "":
		return identity{}, !t.Required, nil
	case p.cfg.Accounts == nil:
		return identity{}, false, errors.New("service account tokens need an API server")
	}
	ns, name := pod.Namespace, pod.Spec.ServiceAccountName
	a, err := p.cfg.Accounts.Account(ctx, ns, name)
	if err != nil {
		return identity{}, false, fmt.Errorf("service account %s/%s: %w", ns, name, err)
	}
	who = identity{account: &ServiceAccount{UID: a.UID, Namespace: ns, Name: name}, annotations: map[string]string{}}
	// Not an error: service accounts opt in by having the annotation.
	for _, k := range t.RequiredAnnotations {
		if _, has := a.Annotations[k]; !has {
			return identity{}, false, nil
		}
	}
	// The plugin gets only the annotations that its configuration names.
	for _, k := range slices.Concat(t.RequiredAnnotations, t.OptionalAnnotations) {
		if v, has := a.Annotations[k]; has {
			who.annotations[k] = v
		}
	}
	return who, true, nil
}

// identify returns the same identity as whose, with a token. It blocks until the API server has
// created the token.
func (p *Plugins) identify(ctx context.Context, plugin *Plugin, pod *v1.Pod) (who identity, use bool, err error) {
	who, use, err = p.whose(ctx, plugin, pod)
	if who.account == nil || !use || err != nil {
		return who, use, err
	}
	if who.token, err = p.cfg.Accounts.Token(ctx, pod, plugin.Token.Audience); err != nil {
		return identity{}, false, fmt.Errorf("token of service account %s/%s: %w", who.account.Namespace, who.account.Name, err)
	}
	// The account was deleted and created again between the two requests. Records of the old
	// account must not count for the new one.
	if uid := accountOf(who.token); uid != "" && uid != who.account.UID {
		return identity{}, false, fmt.Errorf("token of service account %s/%s: the token is for UID %.64q, but the account has UID %.64q now", who.account.Namespace, who.account.Name, uid, who.account.UID)
	}
	hash := sha256.Sum256([]byte(who.token))
	who.asked = digest(who.account, who.annotations, hex.EncodeToString(hash[:]))
	who.remembered = who.asked
	if plugin.Token.ByAccount {
		who.remembered = digest(who.account, who.annotations)
	}
	return who, true, nil
}

// digest returns a hash of parts, so that the length of keys does not depend on annotations.
func digest(parts ...any) string {
	b, err := json.Marshal(parts) // sorts the keys of maps
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// accountOf returns the UID of the service account in a token, or "" if there is none. It does
// not verify the token, which came from the API server: a wrong UID can only cause a refusal.
func accountOf(token string) string {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return ""
	}
	b, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return ""
	}
	var claims struct {
		Kubernetes struct {
			ServiceAccount struct {
				UID string `json:"uid"`
			} `json:"serviceaccount"`
		} `json:"kubernetes.io"`
	}
	if json.Unmarshal(b, &claims) != nil {
		return ""
	}
	return claims.Kubernetes.ServiceAccount.UID
}

// PodAccounts implements PodKeyring. A plugin whose account cannot be read is skipped, which at
// worst causes another pull.
func (p *Plugins) PodAccounts(ctx context.Context, image string, pod *v1.Pod) (out []ServiceAccount) {
	for plugin := range p.knowing(image) {
		if who, use, err := p.whose(ctx, plugin, pod); err == nil && use && who.account != nil && !slices.Contains(out, *who.account) {
			out = append(out, *who.account)
		}
	}
	return out
}
