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

// ErrNotFound is what a source returns, in its error's tree, for an object that
// does not exist. Only that is forgiven to an optional one.
var ErrNotFound = errors.New("not found")

// Kinds of objects, as in volumemgr.Ref.
const (
	kindConfigMap = "ConfigMap"
	kindSecret    = "Secret"
	kindBundle    = "ClusterTrustBundle"
	// kindSigner stands for all trust bundles of a signer, which is the name.
	kindSigner = "ClusterTrustBundleSigner"
)

// ContentObject is what files are made of. It is shared and not to be changed.
type ContentObject struct {
	// Version changes whenever Data does; "" is not known.
	Version string
	// Data are the values by key: those of a ConfigMap's binaryData too.
	Data map[string][]byte
}

// ObjectOfConfigMap is a ConfigMap as an Object. Its version is the API server's, or
// made of the content where no server gave one.
func ObjectOfConfigMap(c *v1.ConfigMap) *ContentObject {
	data := make(map[string][]byte, len(c.Data)+len(c.BinaryData))
	maps.Copy(data, c.BinaryData)
	for k, v := range c.Data {
		data[k] = []byte(v)
	}
	return &ContentObject{Version: versionOf(&c.ObjectMeta, data), Data: data}
}

// ObjectOfSecret is a Secret as an Object, with its version as OfConfigMap has it. One
// that no API server has seen may have stringData, which wins over data.
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

// ContentSource has ConfigMaps and Secrets.
type ContentSource interface {
	// Get returns an object; kind is "ConfigMap" or "Secret".
	Get(ctx context.Context, kind, namespace, name string) (*ContentObject, error)
}

// Tokens issues service account tokens; see [TokenCache].
type Tokens interface {
	Token(ctx context.Context, namespace, account string, spec authv1.TokenRequestSpec) (Token, error)
	// Forget drops what is kept for a pod.
	Forget(uid types.UID)
}

// Bundle describes which certificates are wanted: those of one ClusterTrustBundle by
// name, or of all of a signer's that the selector takes (nil takes none).
type Bundle struct {
	Name, Signer string
	Selector     *metav1.LabelSelector
}

// Bundles has trust anchors, in PEM. None is an ErrNotFound.
type Bundles interface {
	Bundle(ctx context.Context, b Bundle) (pem []byte, err error)
}

// Certificates has the certificates that were issued to pods, in PEM. source is
// the index in the projected volume.
type Certificates interface {
	Certificate(ctx context.Context, pod *v1.Pod, volume string, source int) (key, chain []byte, err error)
	// ForgetVolume drops what is kept for a pod's volume.
	ForgetVolume(uid types.UID, volume string)
}

// get fetches an object; nil and no error is an optional one that does not
// exist.
func (p *Content) get(ctx context.Context, kind, namespace, name string, optional *bool) (*ContentObject, error) {
	if p.cfg.Source == nil {
		return nil, fmt.Errorf("%s %s/%s: there is nowhere to get it from", kind, namespace, name)
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
