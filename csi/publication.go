package csi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	authv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/volumemgr"
	"github.com/nodewright/nodewright/volumemgr/plugins"
)

// The request of a publication: everything that a driver gets in addition to the volume's own
// attributes. It contains secrets and tokens; never log it.

// publication returns the request to publish a volume, without the staging path, and the time
// after which it has to be renewed. It changes nothing.
func (m *Manager) publication(ctx context.Context, v *volumemgr.Volume, src source, object plugins.CSIDriver, d *driver, target string) (_ *spec.NodePublishVolumeRequest, again time.Duration, err error) {
	if err := mayPublish(src, object); err != nil {
		return nil, 0, transient(err)
	}
	secrets, err := m.secrets(ctx, src.publish, "nodePublishSecretRef")
	if err != nil {
		return nil, 0, transient(err)
	}
	attached, err := m.attached(ctx, v, src, object)
	if err != nil {
		return nil, 0, err
	}
	words := volumeContext(src, v.Pod, object.PodInfoOnMount)
	tokens, again, err := m.tokensOf(ctx, v.Pod, object)
	if err != nil {
		return nil, 0, transient(err)
	}
	switch {
	case tokens == "":
	// serviceAccountTokenInSecrets of the CSIDriver object: drivers may log a volume's context,
	// but do not log secrets.
	case object.TokensInSecrets:
		if secrets == nil {
			secrets = map[string]string{}
		}
		secrets[keyTokens] = tokens
	default:
		words[keyTokens] = tokens
	}
	return &spec.NodePublishVolumeRequest{
		VolumeId: src.handle, PublishContext: attached, TargetPath: target, Readonly: src.readOnly, Secrets: secrets, VolumeContext: words,
		VolumeCapability: src.capability(d.can, mountGroup(d.can, v), m.context(v, src, object)),
	}, again, nil
}

// mountGroup returns the group that the driver has to mount with. It is "" if the driver lacks the
// capability VOLUME_MOUNT_GROUP: the agent then changes the group of the files.
func mountGroup(can abilities, v *volumemgr.Volume) string {
	if !can.mountGroup || v.FSGroup == nil {
		return ""
	}
	return strconv.FormatInt(*v.FSGroup, 10)
}

// maxSecret limits the bytes of the secrets of a call. A Secret may have 1 MiB, a gRPC request 4
// MiB.
const maxSecret = 2 << 20

// secrets returns the data of a Secret in a map that the caller owns, or nil if ref names none.
// field is the name of the reference for errors, which never contain values.
func (m *Manager) secrets(ctx context.Context, ref *v1.SecretReference, field string) (map[string]string, error) {
	if ref == nil || ref.Name == "" {
		return nil, nil //nolint:nilnil // no Secret is named
	}
	who := fmt.Sprintf("%s: Secret %s/%s", field, ref.Namespace, ref.Name)
	if m.cfg.Secrets == nil {
		return nil, fmt.Errorf("%s: this agent has no source of Secrets", who)
	}
	data, err := m.cfg.Secrets.Secret(ctx, ref.Namespace, ref.Name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", who, err)
	}
	out, n := make(map[string]string, len(data)), 0
	for k, b := range data {
		out[k] = string(b)
		n += len(k) + len(b)
	}
	if n > maxSecret {
		return nil, fmt.Errorf("%s has %d bytes; want at most %d", who, n, maxSecret)
	}
	return out, nil
}

// attached waits until a controller has attached the volume, and returns the publish context of
// the attachment. For volumes that are not attached it returns nil. It blocks at most for
// attachTime. The result is stored until the volume is no longer in use, so that staging and all
// publications wait only once.
func (m *Manager) attached(ctx context.Context, v *volumemgr.Volume, src source, object plugins.CSIDriver) (map[string]string, error) {
	if src.ephemeral || !object.AttachRequired {
		return nil, nil //nolint:nilnil // the volume is not attached
	}
	if m.cfg.Cluster == nil {
		return nil, fmt.Errorf("driver %s needs a controller to attach its volumes, which a node without an API server does not have", src.driver)
	}
	name := unique(src.driver, src.handle)
	m.mu.Lock()
	known, ok := m.contexts[name]
	m.mu.Unlock()
	if ok {
		return known, nil
	}
	// Recorded before the wait, so that a controller that is about to detach the volume sees that
	// it is in use.
	m.use(name, true)
	defer m.waitsFor(v.UID, v.Name, "")
	note := func(what string) { m.waitsFor(v.UID, v.Name, "of driver "+src.driver+" waits for "+what) }
	ctx, done := context.WithTimeout(ctx, attachTime)
	defer done()
	attachment := attachmentName(src.handle, src.driver, m.cfg.NodeName)
	metadata, err := m.cfg.Cluster.Wait(ctx, plugins.Attachment{Name: attachment, Volume: name}, note)
	// The scheduler used an outdated limit. Publish the current one; the pod has to run
	// elsewhere.
	if errors.Is(err, plugins.ErrExhausted) {
		m.Refresh(src.driver)
		m.cfg.Exhausted(v.Pod, err)
	}
	if err != nil {
		return nil, transient(fmt.Errorf("wait for attachment %s: %w", attachment, err))
	}
	if n := size(metadata); n > maxContext {
		return nil, transient(fmt.Errorf("attachmentMetadata of %s has %d bytes; want at most %d", attachment, n, maxContext))
	}
	m.mu.Lock()
	m.contexts[name] = metadata
	m.mu.Unlock()
	return metadata, nil
}

// tokensOf returns the tokens that a driver requires for the pod, as JSON by audience, or "" if it
// requires none. The result again is the time after which the volume has to be published again,
// because tokens expire or because of requiresRepublish.
func (m *Manager) tokensOf(ctx context.Context, pod *v1.Pod, object plugins.CSIDriver) (_ string, again time.Duration, err error) {
	again = republishEvery
	if len(object.TokenRequests) == 0 || pod == nil {
		return "", again, nil
	}
	if m.cfg.Tokens == nil {
		return "", 0, fmt.Errorf("driver %s needs service account tokens, which a node without an API server does not have", object.Name)
	}
	type token struct {
		Token   string `json:"token"`
		Expires string `json:"expirationTimestamp"`
	}
	out := map[string]token{}
	for _, r := range object.TokenRequests {
		want := authv1.TokenRequestSpec{
			ExpirationSeconds: r.ExpirationSeconds,
			// Bound to the pod: the token becomes invalid when the pod is deleted.
			BoundObjectRef: &authv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
		}
		// Without an audience, the API server chooses its own; the key in the JSON is "".
		if r.Audience != "" {
			want.Audiences = []string{r.Audience}
		}
		t, err := m.cfg.Tokens.Token(ctx, pod.Namespace, pod.Spec.ServiceAccountName, want)
		if err != nil {
			return "", 0, fmt.Errorf("token with audience %q: %w", r.Audience, err)
		}
		out[r.Audience] = token{t.Value, t.Expires.UTC().Format(time.RFC3339)}
		// At least a second, since a token that is already due would cause a loop.
		again = min(again, max(t.Refresh, time.Second))
	}
	b, err := json.Marshal(out)
	return string(b), again, err
}

// context returns the SELinux context to mount a volume with. It returns "" unless no other pod
// can use the volume, all containers of the pod have the same context, and the driver supports
// contexts. If it is "", the runtime relabels the files one by one, which is slower but always
// correct.
func (m *Manager) context(v *volumemgr.Volume, src source, object plugins.CSIDriver) string {
	if !object.SELinuxMount || src.ephemeral || src.block || v.Pod == nil || len(src.modes) != 1 || src.modes[0] != v1.ReadWriteOncePod {
		return ""
	}
	sc := v.Pod.Spec.SecurityContext
	// The pod requests relabelling of files (seLinuxChangePolicy: Recursive).
	if sc != nil && sc.SELinuxChangePolicy != nil && *sc.SELinuxChangePolicy == v1.SELinuxChangePolicyRecursive {
		return ""
	}
	var label string
	for i, c := range slices.Concat(v.Pod.Spec.InitContainers, v.Pod.Spec.Containers) {
		var o *v1.SELinuxOptions
		if sc != nil {
			o = sc.SELinuxOptions
		}
		if c.SecurityContext != nil && c.SecurityContext.SELinuxOptions != nil {
			o = c.SecurityContext.SELinuxOptions
		}
		// If the runtime chooses the level, it is unknown before the container is created.
		if o == nil || o.Level == "" {
			return ""
		}
		l, enabled := m.cfg.FileLabel(o)
		// The label is passed in a mount option in double quotes, which these characters would
		// end.
		if !enabled || l == "" || strings.ContainsAny(l, "\"\n\x00") || i > 0 && l != label {
			return ""
		}
		label = l
	}
	return label
}
