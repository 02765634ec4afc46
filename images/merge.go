package images

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// maxSecrets limits the recorded credentials of one repository of an image, since rotated
// secrets add new ones.
const maxSecrets = 100

// none reports whether no credentials are recorded. A pod may then use the image only if the
// registry permits it.
func (c pullCredentials) none() bool {
	return !c.NodePodsAccessible && len(c.KubernetesSecrets) == 0 && len(c.KubernetesServiceAccounts) == 0
}

// merged returns the union of c and other, and whether the union differs from c. It modifies
// neither, since the index shares records. An image that all pods of the node may use remains so.
func (c pullCredentials) merged(other pullCredentials) (pullCredentials, bool) {
	switch {
	case c.NodePodsAccessible || other.none():
		return c, false
	case other.NodePodsAccessible:
		return pullCredentials{NodePodsAccessible: true}, true
	}
	secrets, a := union(c.KubernetesSecrets, other.KubernetesSecrets, comparePullSecrets)
	accounts, b := union(c.KubernetesServiceAccounts, other.KubernetesServiceAccounts, compareAccounts)
	// Only secrets are limited: service accounts are not rotated.
	if len(secrets) > maxSecrets {
		secrets = trimmed(secrets, other.KubernetesSecrets)
	}
	return pullCredentials{KubernetesSecrets: secrets, KubernetesServiceAccounts: accounts}, a || b
}

// union returns the sorted union of both lists, and whether it differs from list. It modifies
// neither list. Since the result is sorted, equal records give equal files.
func union[T comparable](list, more []T, compare func(a, b T) int) ([]T, bool) {
	all := slices.Clone(list)
	for _, x := range more {
		if !slices.Contains(all, x) {
			all = append(all, x)
		}
	}
	grown := len(all) > len(list)
	slices.SortFunc(all, compare)
	return all, grown
}

// trimmed drops secrets until maxSecrets are left: first older contents of the newest secrets,
// then others. A pod with a dropped credential needs another pull.
func trimmed(all, newest []pullSecret) []pullSecret {
	rank := func(s pullSecret) int {
		if slices.Contains(newest, s) {
			return 0
		}
		if slices.ContainsFunc(newest, s.sameSecret) {
			return 2
		}
		return 1
	}
	slices.SortStableFunc(all, func(a, b pullSecret) int { return cmp.Compare(rank(a), rank(b)) })
	all = all[:maxSecrets]
	slices.SortFunc(all, comparePullSecrets)
	return all
}

// sameSecret reports whether both come from the same Secret object, whatever its content.
func (s pullSecret) sameSecret(o pullSecret) bool {
	s.CredentialHash, o.CredentialHash = "", ""
	return s == o
}

// comparePullSecrets compares all fields, for a deterministic order.
func comparePullSecrets(a, b pullSecret) int {
	return cmp.Or(
		strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name),
		strings.Compare(a.UID, b.UID), strings.Compare(a.CredentialHash, b.CredentialHash),
	)
}

// compareAccounts compares all fields, for a deterministic order.
func compareAccounts(a, b ServiceAccount) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name), strings.Compare(a.UID, b.UID))
}

// updated returns the record of the image ref after a pull from repository with creds, and
// whether this record differs from r, which may be nil. Empty creds create a record, but do not
// change an existing one. It copies the map, since readers use r without a lock.
func (r *pulledRecord) updated(ref, repository string, creds pullCredentials, now time.Time) (*pulledRecord, bool) {
	var have map[string]pullCredentials
	if r != nil {
		have = r.CredentialMapping
	}
	all, changed := have[repository].merged(creds)
	if r != nil && !changed {
		return r, false
	}
	mapping := maps.Clone(have)
	if mapping == nil {
		mapping = map[string]pullCredentials{}
	}
	mapping[repository] = all
	return &pulledRecord{
		TypeMeta:        metav1.TypeMeta{APIVersion: recordVersion, Kind: recordKind},
		LastUpdatedTime: metav1.Time{Time: now}, ImageRef: ref, CredentialMapping: mapping,
	}, true
}
