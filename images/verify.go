package images

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/distribution/reference"
)

// Verify selects the present images for which a pod's credentials are verified. Its values are
// those of the kubelet's imagePullCredentialsVerificationPolicy.
type Verify string

// The values of Verify.
const (
	// NeverVerify lets every pod use every image. Records are still written, so that the policy
	// can be changed later.
	NeverVerify Verify = "NeverVerify"
	// NeverVerifyPreloadedImages exempts images that were not pulled by this agent or a kubelet.
	NeverVerifyPreloadedImages Verify = "NeverVerifyPreloadedImages"
	// NeverVerifyAllowlistedImages exempts preloaded images that are in Config.Allowlist.
	NeverVerifyAllowlistedImages Verify = "NeverVerifyAllowlistedImages"
	// AlwaysVerify exempts no image.
	AlwaysVerify Verify = "AlwaysVerify"
)

// The results of a check, with the names that the metric has for them.
const (
	checkPolicy     = "credentialPolicyAllowed"
	checkRecord     = "credentialRecordFound"
	checkMustPull   = "mustAuthenticate"
	checkUnreadable = "error"
)

// policy is a validated Verify with its allow list. It is immutable.
type policy struct {
	verify Verify
	exact  []string // full names of repositories
	under  []string // prefixes of repositories; each ends in a slash
}

// newPolicy checks both values; the error has all mistakes. If verify is "", it is
// NeverVerifyPreloadedImages, as in the kubelet.
func newPolicy(verify Verify, allowlist []string) (policy, error) {
	p := policy{verify: verify}
	var errs []error
	switch verify {
	case "":
		p.verify = NeverVerifyPreloadedImages
	case NeverVerify, NeverVerifyPreloadedImages, NeverVerifyAllowlistedImages, AlwaysVerify:
	default:
		errs = append(errs, fmt.Errorf("Config.Verify %q: want %s, %s, %s or %s", verify,
			NeverVerify, NeverVerifyPreloadedImages, NeverVerifyAllowlistedImages, AlwaysVerify))
	}
	if len(allowlist) > 0 && verify != NeverVerifyAllowlistedImages {
		errs = append(errs, fmt.Errorf("Config.Allowlist is only for Config.Verify %s", NeverVerifyAllowlistedImages))
	}
	for i, pattern := range allowlist {
		if err := p.allow(pattern); err != nil {
			errs = append(errs, fmt.Errorf("Config.Allowlist[%d] %q: %w", i, pattern, err))
		}
	}
	return p, errors.Join(errs...)
}

// errPattern is the error for an invalid entry of Config.Allowlist.
var errPattern = errors.New("want a repository without tag and digest, or whole parts of one and /*")

// allow adds a pattern to the allow list. It expands short names, as for images.
func (p *policy) allow(pattern string) error {
	// Two elements, since docker.io/x would be expanded to docker.io/library/x.
	const any = "x/x"
	if begin, ok := strings.CutSuffix(pattern, "/*"); ok {
		named, err := reference.ParseNormalizedNamed(begin + "/" + any)
		if err != nil {
			return fmt.Errorf("%w: %w", errPattern, err)
		}
		p.under = append(p.under, strings.TrimSuffix(named.Name(), any))
		return nil
	}
	named, err := reference.ParseNormalizedNamed(pattern)
	if err != nil {
		return fmt.Errorf("%w: %w", errPattern, err)
	}
	if !reference.IsNameOnly(named) {
		return errPattern
	}
	p.exact = append(p.exact, named.Name())
	return nil
}

// spares reports whether an image is exempt from verification. ours reports that this agent or a
// kubelet has pulled the image or may be pulling it.
func (p *policy) spares(image string, ours bool) bool {
	switch p.verify {
	case NeverVerify:
		return true
	case NeverVerifyPreloadedImages:
		return !ours
	case NeverVerifyAllowlistedImages:
		name := repository(image)
		return !ours && name != "" && (slices.Contains(p.exact, name) ||
			slices.ContainsFunc(p.under, func(begin string) bool { return strings.HasPrefix(name, begin) }))
	default:
		return false
	}
}

// repository returns an image's full name without tag and digest, or "" for an invalid name.
func repository(image string) string {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return ""
	}
	return named.Name()
}

// asWritten returns an image's name without tag and digest, as it was written: a short name stays
// short. Records may use that name too. A colon before the last slash belongs to the port.
func asWritten(image string) string {
	image, _, _ = strings.Cut(image, "@")
	if i := strings.LastIndexByte(image, ':'); i > strings.LastIndexByte(image, '/') {
		image = image[:i]
	}
	return image
}

// known is what the records say about an image.
type known struct {
	record     *pulledRecord // nil if there is none
	unreadable bool          // a record is, or may be, unreadable
	pulling    bool          // a pull of the image has not ended
}

// asker has the credentials and accounts of a pod that wants to use an image.
type asker struct {
	secrets  []pullSecret // credentials of the pod's Secrets for this image
	accounts []ServiceAccount
}

// verdict is the result of decide.
type verdict struct {
	use    bool
	result string          // value of the metric's label
	learn  pullCredentials // credentials to add to the record; usually empty
}

// decide reports whether a pod may use a present image without asking the registry. It has no
// side effects. It calls who only if the decision depends on the pod's credentials.
//
// The kubelet accepts a Secret by its recorded name, even if its content has changed, as long as
// fewer than a hundred are stored. So a user who may write Secrets could use an image that the
// registry denies, and rotating a Secret would not revoke access. Here only the content counts:
// changed content needs one pull, and is recorded then.
func (p *policy) decide(ref, image string, k known, who func() asker) verdict {
	switch {
	case p.verify == NeverVerify:
		return verdict{use: true, result: checkPolicy}
	// Without a reference, no record can be looked up.
	case ref == "":
		return verdict{result: checkMustPull}
	// An unreadable record must not make the image available to all pods.
	case k.unreadable:
		return verdict{result: checkUnreadable}
	case p.spares(image, k.record != nil || k.pulling):
		return verdict{use: true, result: checkPolicy}
	case k.record == nil:
		return verdict{result: checkMustPull}
	}
	creds := k.record.CredentialMapping[repository(image)]
	if written := asWritten(image); written != repository(image) {
		creds, _ = creds.merged(k.record.CredentialMapping[written])
	}
	switch {
	case creds.NodePodsAccessible:
		return verdict{use: true, result: checkRecord}
	case creds.none():
		return verdict{result: checkMustPull}
	}
	a := who()
	for _, s := range a.secrets {
		if s.CredentialHash == "" || !slices.ContainsFunc(creds.KubernetesSecrets, func(o pullSecret) bool { return o.CredentialHash == s.CredentialHash }) {
			continue
		}
		v := verdict{use: true, result: checkRecord}
		if !slices.Contains(creds.KubernetesSecrets, s) {
			// The same credential in another Secret is recorded too, so that access remains when
			// the first Secret is dropped from the record.
			v.learn.KubernetesSecrets = []pullSecret{s}
		}
		return v
	}
	if slices.ContainsFunc(a.accounts, func(s ServiceAccount) bool { return s.UID != "" && slices.Contains(creds.KubernetesServiceAccounts, s) }) {
		return verdict{use: true, result: checkRecord}
	}
	return verdict{result: checkMustPull}
}
