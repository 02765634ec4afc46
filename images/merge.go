package images

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// maxSecrets bounds the credentials that are kept for one repository of an
// image. Secrets that are rotated would make it grow without end.
const maxSecrets = 100

// none reports that nothing is known of who may use the image. Nobody may use
// such an image before the registry has let them.
func (c pullCredentials) none() bool {
	return !c.NodePodsAccessible && len(c.KubernetesSecrets) == 0 && len(c.KubernetesServiceAccounts) == 0
}

// merged returns what is known when more was learned, and whether that is
// anything new. What the whole node may use stays so. Neither is changed:
// records in the index are shared.
func (c pullCredentials) merged(more pullCredentials) (pullCredentials, bool) {
	switch {
	case c.NodePodsAccessible || more.none():
		return c, false
	case more.NodePodsAccessible:
		return pullCredentials{NodePodsAccessible: true}, true
	}
	secrets, a := union(c.KubernetesSecrets, more.KubernetesSecrets, comparePullSecrets)
	accounts, b := union(c.KubernetesServiceAccounts, more.KubernetesServiceAccounts, compareAccounts)
	// Service accounts are not rotated, and stay.
	if len(secrets) > maxSecrets {
		secrets = trimmed(secrets, more.KubernetesSecrets)
	}
	return pullCredentials{KubernetesSecrets: secrets, KubernetesServiceAccounts: accounts}, a || b
}

// union returns all of both, sorted and each once, and whether more brought
// anything. It changes neither. The order makes files of equal content equal.
func union[T comparable](have, more []T, compare func(a, b T) int) ([]T, bool) {
	all := slices.Clone(have)
	for _, x := range more {
		if !slices.Contains(all, x) {
			all = append(all, x)
		}
	}
	grown := len(all) > len(have)
	slices.SortFunc(all, compare)
	return all, grown
}

// trimmed drops secrets until maxSecrets are left: first those that the new
// ones have the coordinates of, which are their older contents, then any other.
// Who is dropped has to show the registry its credentials once more.
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

// sameSecret reports whether both are of one secret, whatever its content.
func (s pullSecret) sameSecret(o pullSecret) bool {
	s.CredentialHash, o.CredentialHash = "", ""
	return s == o
}

// comparePullSecrets orders by every field, so that the order of equal sets is
// always the same.
func comparePullSecrets(a, b pullSecret) int {
	return cmp.Or(
		strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name),
		strings.Compare(a.UID, b.UID), strings.Compare(a.CredentialHash, b.CredentialHash),
	)
}

// compareAccounts orders service accounts in the same way.
func compareAccounts(a, b ServiceAccount) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name), strings.Compare(a.UID, b.UID))
}

// updated returns the record of ref when its image was had of a repository
// with these credentials, and whether that is other than r, which may be nil.
// Credentials that are none make a record where there is none, and change
// nothing where there is one. The map is copied before it is changed: readers
// hold r without a lock.
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
