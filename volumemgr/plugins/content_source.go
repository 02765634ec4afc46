package plugins

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"

	authv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ErrNotFound means that an object does not exist; sources wrap it. For an optional object, every
// other error is a failure.
var ErrNotFound = errors.New("not found")

// Kinds of objects, as in volumemgr.Ref.
const (
	kindConfigMap = "ConfigMap"
	kindSecret    = "Secret"
	kindBundle    = "ClusterTrustBundle"
	// kindSigner stands for all trust bundles of the signer with the given name.
	kindSigner = "ClusterTrustBundleSigner"
)

// ContentObject is the data of an object that becomes files. It is shared; do not modify it.
type ContentObject struct {
	// Version changes whenever Data does. It is "" if no version is known.
	Version string
	// Data has the values by key, including a ConfigMap's binaryData.
	Data map[string][]byte
}

// ObjectOfConfigMap returns the content of a ConfigMap. Its version is that of the API server. If
// the ConfigMap does not come from an API server, the version is a hash of the content.
func ObjectOfConfigMap(c *v1.ConfigMap) *ContentObject {
	data := make(map[string][]byte, len(c.Data)+len(c.BinaryData))
	maps.Copy(data, c.BinaryData)
	for k, v := range c.Data {
		data[k] = []byte(v)
	}
	return &ContentObject{Version: versionOf(&c.ObjectMeta, data), Data: data}
}

// ObjectOfSecret returns the content of a Secret. It has a version like the result of
// ObjectOfConfigMap. A Secret from a file may have stringData, which overrides data.
func ObjectOfSecret(s *v1.Secret) *ContentObject {
	data := s.Data
	if len(s.StringData) > 0 {
		data = make(map[string][]byte, len(s.Data)+len(s.StringData))
		maps.Copy(data, s.Data)
		for k, v := range s.StringData {
			data[k] = []byte(v)
		}
	}
	return &ContentObject{Version: versionOf(&s.ObjectMeta, data), Data: data}
}

func versionOf(m *metav1.ObjectMeta, data map[string][]byte) string {
	if m.ResourceVersion != "" {
		return string(m.UID) + "/" + m.ResourceVersion
	}
	h := sha256.New()
	for _, k := range slices.Sorted(maps.Keys(data)) {
		put(h, k)
		put(h, string(data[k]))
	}
	return string(h.Sum(nil))
}

// ContentSource reads ConfigMaps and Secrets.
type ContentSource interface {
	// Get returns an object; kind is "ConfigMap" or "Secret".
	Get(ctx context.Context, kind, namespace, name string) (*ContentObject, error)
}

// Tokens issues service account tokens; see [TokenCache].
type Tokens interface {
	Token(ctx context.Context, namespace, account string, spec authv1.TokenRequestSpec) (Token, error)
	// Forget removes the tokens of a pod from the cache.
	Forget(uid types.UID)
}

// Bundle selects trust anchors: those of the ClusterTrustBundle with this name, or those of all
// bundles of a signer that match the selector. A nil selector matches none.
type Bundle struct {
	Name, Signer string
	Selector     *metav1.LabelSelector
}

// Bundles returns trust anchors, in PEM. If there are none, the error is ErrNotFound.
type Bundles interface {
	Bundle(ctx context.Context, b Bundle) (pem []byte, err error)
}

// Certificates returns the certificates that were issued to pods, in PEM. source is the index in
// the projected volume.
type Certificates interface {
	Certificate(ctx context.Context, pod *v1.Pod, volume string, source int) (key, chain []byte, err error)
	// ForgetVolume drops the certificates of a pod's volume.
	ForgetVolume(uid types.UID, volume string)
}

// get reads an object. It returns nil without an error if an optional object does not exist.
func (p *Content) get(ctx context.Context, kind, namespace, name string, optional *bool) (*ContentObject, error) {
	if p.cfg.Source == nil {
		return nil, fmt.Errorf("%s %s/%s: no source is configured", kind, namespace, name)
	}
	o, err := p.cfg.Source.Get(ctx, kind, namespace, name)
	if err == nil && o == nil {
		err = ErrNotFound
	}
	if errors.Is(err, ErrNotFound) && isTrue(optional) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("couldn't get %s %s/%s: %w", kind, namespace, name, err)
	}
	return o, nil
}

func isTrue(b *bool) bool { return b != nil && *b }
