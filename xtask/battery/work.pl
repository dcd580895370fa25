# Hashes, strings, regular expressions, closures, sorting, formats and fork, with a result that never varies.
use strict;
use warnings;
my $seed = 12345;
sub rnd { $seed = ($seed * 1103515245 + 12345) % 2147483648; return $seed % $_[0] }
my %words;
for (1 .. 60000) { $words{ join '', map { chr(97 + rnd(26)) } 1 .. 2 + rnd(3) }++ }
print scalar(keys %words), " words\n";
print "$_ $words{$_}\n" for (sort { $words{$b} <=> $words{$a} || $a cmp $b } keys %words)[0 .. 20];
my $text = join ' ', map { "k$_=" . ('v' x rnd(40)) } 1 .. 20000;
my %pairs;
while ($text =~ /(k\d+)=(v*)/g) { $pairs{$1} = length $2 }
my $total = 0;
$total += $_ for values %pairs;
print "pairs ", scalar(keys %pairs), " total $total\n";
(my $swapped = $text) =~ s/k(\d+)=(v+)/$2:$1/g;
print length($swapped), " ", unpack('%32C*', $swapped), "\n";
my @tree = map { { id => $_, kids => [ map { { n => $_ x 3 } } 1 .. 5 ] } } 1 .. 5000;
print join(',', map { $_->{kids}[2]{n} } @tree[0 .. 9]), "\n";
my @fns = map { my $n = $_; sub { $n * $_[0] } } 1 .. 2000;
my $acc = 0;
$acc = ($acc + $_->(3)) % 1000003 for @fns;
print "closures $acc\n";
my $s = '';
$s .= "x$_" for 1 .. 100000;
print length($s), "\n";
$| = 1;
for my $n (1 .. 20) {
    pipe(my $r, my $w) or die;
    my $pid = fork() // die;
    if (!$pid) { close $r; my @a = map { "$n-$_" } 1 .. 3000; print $w scalar(@a), " $a[-1]\n"; close $w; exit 0 }
    close $w;
    print "child $n: ", scalar(<$r>);
    waitpid $pid, 0;
    die if $?;
}
