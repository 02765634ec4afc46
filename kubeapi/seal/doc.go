// Package seal encrypts values that a node of a cluster stores for a start without
// a network, and that must not be readable on its disk: Secrets, and tokens.
//
//	s, err := seal.Machine("/var/lib/nodewright/secret.key", nil)
//	...
//	sealed, err := s.Seal("secret-1", plain)
//	plain, err = s.Unseal("secret-1", sealed)
//
// It uses AES-256 in Galois/Counter Mode (NIST SP 800-38D) with a random nonce for
// each value; the name of a value is authenticated, too.
//
// # Keys
//
// [Machine] uses a key that is created at the first start and stays on the machine.
// It protects values that leave the machine without it: in a backup of the state,
// in a copied file, or in a volume that shows its directory. A reader of the whole
// disk has the key as well. Against that, use a key from elsewhere with [Open], or
// one that systemd unseals with the TPM with [Credential].
//
// Tier: beta.
package seal
