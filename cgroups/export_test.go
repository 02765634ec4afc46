package cgroups

// The machine's own, for the suite that it shares with the one in memory.
var OS FS = osFS{}

const MaxShares = maxShares

var SharesOf = sharesOf
var WeightOf = weightOf
