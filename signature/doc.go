// Package signature decides by a policy file whether an image, or another artifact of a registry, may
// be used: by signatures of cosign with a key, and of Notation with a certificate.
//
//	policy, err := signature.Load("/etc/nodewright/signatures.yaml", log)
//	if err != nil {
//		return err
//	}
//	err = policy.Verify(ctx, "registry.example/shop/web", "sha256:...", fetch)
//
// # Policy
//
// The first rule whose repository matches decides. The last rule is for all repositories, so each image
// has a rule.
//
//	rules:
//	- repository: registry.example/shop/*
//	  mode: enforce
//	  sigstore: {keys: [shop.pub]}
//	- repository: registry.example/base
//	  mode: warn
//	  notation:
//	    certificates: [base-ca.pem]
//	    subjects: [{O: Example, CN: base images}]
//	- repository: "*"
//	  mode: refuse
//
// An image needs one valid signature, by any of the keys or certificates of its rule. Enforce refuses
// other images, warn logs them. Accept and refuse look at no signature.
//
// # What a signature says
//
// A signature is for a digest. The name in cosign's older payload is ignored: the newer format and
// Notation have no name. So images whose names must not be exchanged need different keys.
//
// The digest is the one that the image's name refers to. For an image of several platforms this is the
// index, which cosign and Notation sign.
//
// Nothing but the registry is asked: no transparency log, no time-stamp authority, no revocation list.
// Nothing then proves when an image was signed, so Notation's certificates must be valid at the time of
// the verification.
//
// # What is not trusted
//
// Registries and signatures are not trusted. The number and size of the documents of an image are
// limited, and so is the time of a verification: [Timeout]. A registry can hide a signature, and
// the image is refused then; it cannot forge one.
//
// Tier: beta.
package signature
