// Package seal encrypts values that a node of a cluster stores for a start without
// a network, and that must not be readable on its disk: Secrets, and tokens.
//
//	s, err := seal.Machine("/var/lib/nodewright/secret.key", nil)
//	...
//	sealed, err := s.Seal("secret-1", plain)
//	plain, err = s.Unseal("secret-1", sealed)
//
// It uses AES-256 in Galois/Counter Mode (NIST SP 800-38D), with a random nonce for
// each value. The name of a value is authenticated, too.
//
// # Keys
//
// [Machine] uses a key that is created at the first start and stays on the machine. It
// protects values that leave the machine without the key: in a backup of the state, in
// a copied file, or in a volume that shows their directory. Somebody who can read all
// of the disk has the key as well. To protect values against that, use a key from
// elsewhere ([Open]), or one that systemd unseals with the TPM ([Credential]).
//
// Tier: beta.
package seal
