// Package seal encrypts values that a node of a cluster keeps for a start without
// a network, and that nobody else should read from its disk: Secrets, and tokens.
//
//	s, err := seal.Machine("/var/lib/nodewright/secret.key", nil)
//	...
//	sealed, err := s.Seal("secret-1", plain)
//	plain, err = s.Unseal("secret-1", sealed)
//
// It is AES-256 in Galois/Counter Mode (NIST SP 800-38D), with a random nonce
// each; that a value belongs to its name is authenticated too.
//
// # Keys
//
// [Machine] has a key that is made at the first start and stays on the machine.
// It protects values that leave the machine without it: a backup of the state, a
// file that is sent to somebody, a volume that shows a directory of it. Who has the
// whole disk has the key as well: that takes a key from somewhere else, [Open], such
// as one that systemd unseals with the TPM, [Credential].
//
// Tier: beta.
package seal
