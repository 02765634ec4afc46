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

// PluginToken has a Plugin asked with a token of the service account of the pod
// that wants an image (KEP-4412).
type PluginToken struct {
	Audience string
	// ByAccount remembers answers for all pods of a service account. Otherwise
	// they count for the one token that they were given for.
	ByAccount bool
	// Required leaves the plugin out for pods without a service account. Otherwise
	// it is asked without a token for those.
	Required bool
	// RequiredAnnotations and OptionalAnnotations are keys of annotations of the
	// account that the plugin is told; without one of the former the plugin is
	// left out.
	RequiredAnnotations, OptionalAnnotations []string
}

// Account is what Plugins want to know of a service account.
type Account struct {
	UID         string
	Annotations map[string]string // read-only
}

// Accounts knows a cluster's service accounts. Its methods are called from any
// goroutine and end with ctx.
type Accounts interface {
	// Account is called for each plugin with a token at each look at an image.
	Account(ctx context.Context, namespace, name string) (Account, error)
	// Token is one of the pod's service account, bound to the pod.
	Token(ctx context.Context, pod *v1.Pod, audience string) (string, error)
}

// PodKeyring is a [Keyring] that may know other credentials for every pod. Like
// those of Keyring, the methods are called from any goroutine.
type PodKeyring interface {
	Keyring
	// PodCredentials are those for an image that a pod wants, the most particular
	// first. The pod may be nil. An error comes beside what could be had.
	PodCredentials(ctx context.Context, image string, pod *v1.Pod) ([]PodCredential, error)
	// PodAccounts are the service accounts in whose name the pod would get
	// credentials for the image. Nobody is asked for credentials.
	PodAccounts(ctx context.Context, image string, pod *v1.Pod) []ServiceAccount
}

// PodCredential is a credential, and the service account that it was given to; nil
// for one of the node.
type PodCredential struct {
	Auth    *runtimeapi.AuthConfig
	Account *ServiceAccount
}

// identity is who asks a plugin. The zero value is the node.
type identity struct {
	account     *ServiceAccount
	annotations map[string]string
	// token is never remembered or logged; only its hash is part of keys.
	token string

	remembered string // what an answer is remembered under; "" for the node
	asked      string // which questions at a time are one
}

// whose is the service account for which a pod asks a plugin, and its annotations
// that the plugin is to know. It is nil for the node, and use is false for a pod
// that the plugin is not for. It asks for no token, so that a look at the
// records costs none.
func (p *Plugins) whose(ctx context.Context, plugin *Plugin, pod *v1.Pod) (who identity, use bool, err error) {
	t := plugin.Token
	switch {
	case t == nil:
		return identity{}, true, nil
	case pod == nil || pod.Spec.ServiceAccountName == "":
		return identity{}, !t.Required, nil
	case p.cfg.Accounts == nil:
		return identity{}, false, errors.New("there is no cluster to ask for tokens of service accounts")
	}
	ns, name := pod.Namespace, pod.Spec.ServiceAccountName
	a, err := p.cfg.Accounts.Account(ctx, ns, name)
	if err != nil {
		return identity{}, false, fmt.Errorf("service account %s/%s: %w", ns, name, err)
	}
	who = identity{account: &ServiceAccount{UID: a.UID, Namespace: ns, Name: name}, annotations: map[string]string{}}
	// No error: the annotation is how accounts opt in.
	for _, k := range t.RequiredAnnotations {
		if _, has := a.Annotations[k]; !has {
			return identity{}, false, nil
		}
	}
	// The plugin sees only those that it was configured for.
	for _, k := range slices.Concat(t.RequiredAnnotations, t.OptionalAnnotations) {
		if v, has := a.Annotations[k]; has {
			who.annotations[k] = v
		}
	}
	return who, true, nil
}

// identify is whose, with the token. It blocks for as long as the API server
// takes to make one.
func (p *Plugins) identify(ctx context.Context, plugin *Plugin, pod *v1.Pod) (who identity, use bool, err error) {
	who, use, err = p.whose(ctx, plugin, pod)
	if who.account == nil || !use || err != nil {
		return who, use, err
	}
	if who.token, err = p.cfg.Accounts.Token(ctx, pod, plugin.Token.Audience); err != nil {
		return identity{}, false, fmt.Errorf("token of service account %s/%s: %w", who.account.Namespace, who.account.Name, err)
	}
	// An account that was deleted and made anew under the same name between both
	// questions: records of the one must not open images to the other.
	if uid := accountOf(who.token); uid != "" && uid != who.account.UID {
		return identity{}, false, fmt.Errorf("token of service account %s/%s: UID %.64q, and the account has %.64q now", who.account.Namespace, who.account.Name, uid, who.account.UID)
	}
	hash := sha256.Sum256([]byte(who.token))
	who.asked = digest(who.account, who.annotations, hex.EncodeToString(hash[:]))
	who.remembered = who.asked
	if plugin.Token.ByAccount {
		who.remembered = digest(who.account, who.annotations)
	}
	return who, true, nil
}

// digest stands for what is remembered apart. It is a hash, so that no key
// grows with annotations.
func digest(parts ...any) string {
	b, err := json.Marshal(parts) // its maps are sorted
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// accountOf is the UID of the service account that a token says it is of; "" if it
// does not say. The token is not verified: it came from the API server just
// now, and the answer can only lead to a refusal.
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

// PodAccounts implements PodKeyring. A plugin whose account cannot be looked up
// is left out: at worst that costs a pull.
func (p *Plugins) PodAccounts(ctx context.Context, image string, pod *v1.Pod) (out []ServiceAccount) {
	for plugin := range p.knowing(image) {
		if who, use, err := p.whose(ctx, plugin, pod); err == nil && use && who.account != nil && !slices.Contains(out, *who.account) {
			out = append(out, *who.account)
		}
	}
	return out
}
