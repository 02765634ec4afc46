package kubeapi

import (
	"crypto/x509"
	"time"
)

// rotationDeadline returns when to replace a certificate: after 70 to 90 % of its
// lifetime, by random, which is from 0 to 1.
func rotationDeadline(c *x509.Certificate, random float64) time.Time {
	return c.NotBefore.Add(certificatePart(c, random))
}

// certificatePart returns the part of a certificate's lifetime after which it is
// replaced.
func certificatePart(c *x509.Certificate, random float64) time.Duration {
	return partOf(c.NotAfter.Sub(c.NotBefore), random)
}

func partOf(life time.Duration, random float64) time.Duration {
	return time.Duration(float64(life) * (0.7 + 0.2*random))
}

// plausible is the accepted difference between the start of a new certificate's validity and this
// machine's time: signers backdate certificates by some minutes.
const plausible = 15 * time.Minute

// rotateAt returns the rotationDeadline of a certificate that was issued at a known time of this
// process. If the clocks of signer and machine differ too much, the length of the validity counts
// from that time: a clock that is hours ahead must not cause repeated replacements. If the
// certificate was backdated by more than its length, only the remaining part counts.
func rotateAt(c *x509.Certificate, random float64, issued time.Time) time.Time {
	at := rotationDeadline(c, random)
	if issued.IsZero() || at.After(issued) && c.NotBefore.Before(issued.Add(plausible)) {
		return at
	}
	if c.NotAfter.After(issued) && c.NotBefore.After(issued.Add(-plausible)) && c.NotBefore.Before(issued) {
		return issued.Add(partOf(c.NotAfter.Sub(issued), random))
	}
	return issued.Add(certificatePart(c, random))
}

// closeAt returns the time at which connections with a replaced certificate are closed:
// shortly before it expires, since servers refuse it from then on. Earlier, all watches
// would have to be opened again without need.
func closeAt(c *x509.Certificate, now time.Time) time.Time {
	margin := max(c.NotAfter.Sub(c.NotBefore)/20, time.Minute)
	if at := c.NotAfter.Add(-margin); at.After(now) {
		return at
	}
	return now
}
