package images

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/distribution/reference"
)

// Verify defines for which images that are on the node a pod has to show that it
// could have pulled them. Its values are those of the kubelet's
// imagePullCredentialsVerificationPolicy.
type Verify string

// The values of Verify.
const (
	// NeverVerify lets every pod use every image. Records are kept
	// nevertheless, for the day on which it is changed.
	NeverVerify Verify = "NeverVerify"
	// NeverVerifyPreloadedImages spares the images that somebody else put on
	// the node.
	NeverVerifyPreloadedImages Verify = "NeverVerifyPreloadedImages"
	// NeverVerifyAllowlistedImages spares those of them that are in
	// Config.Allowlist.
	NeverVerifyAllowlistedImages Verify = "NeverVerifyAllowlistedImages"
	// AlwaysVerify spares none.
	AlwaysVerify Verify = "AlwaysVerify"
)

// Results of a check, as the metric names them.
const (
	checkPolicy     = "credentialPolicyAllowed"
	checkRecord     = "credentialRecordFound"
	checkMustPull   = "mustAuthenticate"
	checkUnreadable = "error"
)

// policy is a checked Verify. It does not change, and needs no lock.
type policy struct {
	verify Verify
	exact  []string // repositories
	under  []string // what repositories begin with; each ends in a slash
}

// newPolicy checks both values and returns all faults together. An empty verify
// is NeverVerifyPreloadedImages, the kubelet's default.
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

// errPattern is the same for every kind of fault in Config.Allowlist: it says
// what is wanted.
var errPattern = errors.New("want a repository without tag and digest, or whole parts of one and /*")

// allow adds a pattern to the allow list. Names are completed before they are
// kept, so that they can be compared with those of images.
func (p *policy) allow(pattern string) error {
	// Two parts more, because docker.io/x alone would be docker.io/library/x.
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

// spares reports whether an image need not be verified. Ours are those that this
// agent, or a kubelet before it, has pulled. Images of a pull that has not
// ended are ours too.
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

// repository is an image's full name without tag and digest; "" if it has none.
func repository(image string) string {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return ""
	}
	return named.Name()
}

// asWritten is an image's name without tag and digest, and no longer than it
// was. Records may be by that name too. A colon before the last slash belongs
// to the registry's port.
func asWritten(image string) string {
	image, _, _ = strings.Cut(image, "@")
	if i := strings.LastIndexByte(image, ':'); i > strings.LastIndexByte(image, '/') {
		image = image[:i]
	}
	return image
}

// known is what the records tell of an image.
type known struct {
	record     *pulledRecord // nil if there is none
	unreadable bool          // there is one, or may be one, that cannot be read
	pulling    bool          // a pull of it was begun that has not ended
}

// asker is who wants to use an image.
type asker struct {
	secrets  []pullSecret // credentials for the image
	accounts []ServiceAccount
}

// verdict is the answer.
type verdict struct {
	use    bool
	result string          // for the metric
	learn  pullCredentials // what is to be added to the record; mostly none
}

// decide reports whether a pod may use an image that is here, without asking the
// registry. The asker is looked at only where it matters.
//
// The kubelet takes a secret of known coordinates even when its content has
// changed, as long as fewer than a hundred are stored. Whoever may write a
// secret could in that way use an image that the registry refuses them; and a
// rotation is often meant to lock somebody out. Here only the content counts:
// when it changes, the registry is asked once, and then it is known too. It is
// a function of its arguments alone; the order of the cases is that from the
// most general rule to the particular one.
func (p *policy) decide(ref, image string, k known, who func() asker) verdict {
	switch {
	case p.verify == NeverVerify:
		return verdict{use: true, result: checkPolicy}
	// Without a reference there is nothing to look up.
	case ref == "":
		return verdict{result: checkMustPull}
	// What cannot be read must not open an image to everybody.
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
			// The same credential in another secret: it is recorded, so that it counts
			// even when the first one is dropped.
			v.learn.KubernetesSecrets = []pullSecret{s}
		}
		return v
	}
	if slices.ContainsFunc(a.accounts, func(s ServiceAccount) bool { return s.UID != "" && slices.Contains(creds.KubernetesServiceAccounts, s) }) {
		return verdict{use: true, result: checkRecord}
	}
	return verdict{result: checkMustPull}
}
