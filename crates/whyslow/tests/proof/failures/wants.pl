# Lacks a resource, again and again, and logs each failure: FILE WHAT REST_MS PLACE NAME
use strict;
use Socket;
my ($log, $what, $rest, $place, $name) = @ARGV;
$0 = $name;
open(my $failed, ">>", $log) or die;
select((select($failed), $| = 1)[0]);
my ($made, @kept, $to) = (0);
if ($what eq "ports") {
	socket(my $server, PF_INET, SOCK_STREAM, 0) or die;
	bind($server, sockaddr_in(7777, inet_aton("127.0.0.1"))) or die "$!";
	listen($server, 4000) or die;
	$to = sockaddr_in(7777, inet_aton("127.0.0.1"));
	push @kept, $server;
}
my %does = (
	room => sub { open(my $file, ">>", $place) or return 0; my $wrote = syswrite($file, "x" x 8192); defined($wrote) && $wrote == 8192 },
	inodes => sub { $made++; open(my $file, ">", "$place-$made") },
	files => sub { open(my $file, "<", "/dev/null") or return 0; push @kept, $file; 1 },
	ports => sub { socket(my $s, PF_INET, SOCK_STREAM, 0) or die; connect($s, $to) or return 0; push @kept, $s; 1 },
);
my $do = $does{$what} or die;
while (1) {
	&$do() or syswrite($failed, "x");
	select(undef, undef, undef, $rest / 1000);
}
